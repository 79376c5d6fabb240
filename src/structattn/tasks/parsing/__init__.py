"""Parsing: constituency trees as sequences that a translation model writes, and the scores of their brackets."""
