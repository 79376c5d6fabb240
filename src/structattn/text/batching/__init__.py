"""Batches of sequences and of pairs, as pure functions of (seed, epoch). This package needs torch."""
