"""What lies on this machine's disk: folders, locks, parts, copies."""
