"""Errors, seeded generators, atomic files, locks, progress and special tokens; imports no other package."""
