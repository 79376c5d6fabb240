"""Chunking: how well a linear layer finds the chunks of CoNLL-2000 in the hidden states of a run."""
