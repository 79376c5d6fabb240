"""Reads a run folder and a prepared folder, writes records: what every layer attended to, and what its stack did."""
