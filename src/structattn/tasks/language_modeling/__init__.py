"""Preparation of text for language modeling: ``prepare_language_modeling`` and its ``TextSettings``."""
