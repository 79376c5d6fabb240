"""Reads a run folder and a prepared folder, writes scores."""
