"""Formal languages with exact probabilities: sampling of strings by length, and probabilities of strings."""
