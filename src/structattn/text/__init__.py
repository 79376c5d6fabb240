"""Strict reading and normalization of text."""
