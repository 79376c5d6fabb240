"""Tokenizers: words, characters, bytes, byte-pair encoding and SentencePiece behind one protocol."""
