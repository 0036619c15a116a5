"""Copying versions from one storage to another."""
