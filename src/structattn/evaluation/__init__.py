"""Evaluation: scores of a trained run on held-out data, written to its run folder."""
