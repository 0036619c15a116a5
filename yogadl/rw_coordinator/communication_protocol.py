"""What the server sends when a lock is held; it sends no other message."""

READ_LOCK_GRANTED = "read_lock_granted"
WRITE_LOCK_GRANTED = "write_lock_granted"
