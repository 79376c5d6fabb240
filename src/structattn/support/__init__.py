"""Errors, seeded generators, files, locks, progress, special tokens and the version; imports no other package."""

__version__ = "0.1.0"
