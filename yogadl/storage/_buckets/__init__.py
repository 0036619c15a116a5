"""Versions and their parts in a bucket, and their copies on this machine."""
