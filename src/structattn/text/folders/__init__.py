"""Prepared folders: memory-mapped token ids with a header and digests."""
