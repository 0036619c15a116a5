"""Building a version, in one process or by many."""
