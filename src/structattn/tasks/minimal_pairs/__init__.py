"""Minimal pairs."""
