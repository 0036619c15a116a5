"""One builder at a time: leases in a bucket, and locks."""
