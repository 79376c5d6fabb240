"""Batches of sequences and of pairs: pure functions of (seed, epoch)."""
