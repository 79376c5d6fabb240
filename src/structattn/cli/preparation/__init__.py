"""The commands of ``structattn prepare``, one module per source of data."""
