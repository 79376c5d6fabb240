"""Structured attention in other people's models."""
