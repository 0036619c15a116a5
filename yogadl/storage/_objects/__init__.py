"""Buckets as stores of objects: what S3 and GCS have in common, and each of them."""
