"""Inference with trained runs."""
