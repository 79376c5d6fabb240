"""Character models: word embeddings from spellings, and spellings from hidden states."""
