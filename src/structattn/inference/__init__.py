"""Trained runs: load their weights, translate and score with them."""
