"""Changing a version: a new one that shares with it what they have in common."""
