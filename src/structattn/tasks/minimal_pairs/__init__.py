"""Minimal pairs of sentences: BLiMP, and any file of pairs."""
