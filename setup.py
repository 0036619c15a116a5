"""For tools that still call it; everything is in pyproject.toml."""

from setuptools import setup

setup()
