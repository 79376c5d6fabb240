"""Metrics: numbers in, numbers out."""
