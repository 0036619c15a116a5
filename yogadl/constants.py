"""Names of storage kinds in the lock server's protocol."""

AWS_STORAGE = "aws_storage"
GCS_STORAGE = "gcs_storage"
