"""The choices of preparation, which settings and commands offer; without pydantic, which commands import late."""

from typing import Literal

Level = Literal["bpe", "sentencepiece-bpe", "sentencepiece-unigram", "word", "character", "byte"]
"""The unit of tokens."""
Marker = Literal["end", "start", "continuation", "none"]
"""The marker of word boundaries of bpe."""
TextMode = Literal["sentences", "stream"]
"""Whether lines of a text are sequences of their own."""
Variant = Literal["faithful", "reference"]
"""A grammar as published, or as the authors' code transforms it."""
Protocol = Literal["flare", "hard"]
"""How strings to recognize are drawn."""
TransformationName = Literal["question", "tense"]
"""A transformation of sentences."""
TreeTags = Literal["normalized", "kept"]
"""Whether part-of-speech tags of linearized trees are replaced by one, as in Vinyals et al. (2015), or kept."""
PairLayout = Literal["parallel", "sentences"]
"""Two sides for an encoder-decoder, or source and target as one sentence of a language model."""
