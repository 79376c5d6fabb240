"""Errors, seeded generators, files that are written whole or not at all; imports nothing of the rest."""
