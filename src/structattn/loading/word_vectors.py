"""Input embeddings of words, for each stream of a trained model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from structattn.attention import Streams
from structattn.models import Embedding, EncoderDecoder, SpelledEmbedding, TwoStreamEmbedding
from structattn.support.devices import device_of
from structattn.support.errors import UsageError, quoted
from structattn.support.progress import progress, track
from structattn.support.shapes import Float
from structattn.tasks.loaded import LoadedRun
from structattn.text.folders.parallel import SideName
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.text_tokenizer import TextTokenizer, word_ids
from structattn.text.tokenization.tokenizers import TextError
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL

MAX_WORDS = 10_000
"""The number of most frequent words (the Discrete Transformer paper, section 7.2)."""


@dataclass(frozen=True)
class WordVectors:
    """Embeddings of words.

    Args:
        words: by descending frequency in the training text, ties by code point.
        streams: name of the stream -> one row for each word; the name is None for a model with a single stream.
    """

    words: tuple[str, ...]
    streams: dict[str | None, Float[np.ndarray, "words d_model"]]

    def index(self, word: str) -> int:
        """Return the index of a word.

        Raises:
            UsageError: the word has no embedding.
        """
        if word not in self.words:
            raise UsageError(f"{quoted(word)} is not among the {len(self.words)} words that are compared")
        return self.words.index(word)


def word_vectors(
    run: LoadedRun, side: SideName | None = None, max_words: int = MAX_WORDS, also: Sequence[str] = ()
) -> WordVectors:
    """Return the input embeddings of the most frequent words of the training text that are one token.

    Words that are several subwords have no embedding, and pieces of words are no words. Positions and the factor of the
    model's embedding layer are left out.

    Args:
        run: of translation, or a language model.
        side: of a translation run; None: ``source``.
        max_words: the number of words.
        also: further words, however rare; they come last.

    Cost: the training text is decoded once.

    Raises:
        UsageError: the model has no embeddings, the run is not of translation but a side is given, no word of the text
            is one token, or one of ``also`` is not.
    """
    tokenizer = _tokenizer(run, side)
    _embedding(run, side)  # raises early
    ids = dict(_frequent_words(tokenizer, _training_text(run, side), max_words))
    for word in also:
        ids.setdefault(word, _token_of(tokenizer, word))
    if len(ids) < 2:
        raise UsageError(f"{run.run_dir}: fewer than two words of the training text are a single token")
    return WordVectors(tuple(ids), _vectors(run, side, list(ids.values())))


def embed_words(
    run: LoadedRun, words: Sequence[str], side: SideName | None = None, stream: str | None = None
) -> Float[np.ndarray, "words d_model"]:
    """Return the input embedding of each word, without positions and the factor of the model's embedding layer.

    See ``TrainedRun.embed``.
    """
    tokenizer = _tokenizer(run, side)
    streams = _vectors(run, side, [_token_of(tokenizer, word) for word in words])
    if stream not in streams:
        names = " or ".join(repr(name) for name in streams)
        raise UsageError(f"{run.run_dir}: stream is {stream!r}; expected {names} for this model")
    return streams[stream]


def _vectors(
    run: LoadedRun, side: SideName | None, ids: Sequence[int]
) -> dict[str | None, Float[np.ndarray, "words d_model"]]:
    """Return one row for each id, by the name of the stream."""
    embedding = _embedding(run, side)
    with torch.no_grad():
        tokens = torch.tensor(ids, dtype=torch.int64, device=device_of(run.model))
        embedded = embedding(tokens) if isinstance(embedding, nn.Embedding) else embedding.token_embeddings(tokens)
    streams = embedded._asdict() if isinstance(embedded, Streams) else {None: embedded}
    return {name: each.float().cpu().numpy() for name, each in streams.items()}


def _token_of(tokenizer: TextTokenizer, word: str) -> int:
    token = _only_token(tokenizer, word)
    if token is None:
        raise UsageError(f"the word {quoted(word)} is not one token of the vocabulary, and so has no embedding")
    return token


def _tokenizer(run: LoadedRun, side: SideName | None) -> TextTokenizer:
    if run.prepared.parallel_sides is None:
        if side is not None:
            raise UsageError(f"{run.run_dir}: is not a translation run; it has no {side} side")
        return run.prepared.tokenizer
    if side not in (None, "source", "target"):
        raise UsageError(f"side {side!r} is not one of source, target")
    return run.prepared.sides.target if side == "target" else run.prepared.sides.source


def _training_text(run: LoadedRun, side: SideName | None) -> Sequences:
    if run.prepared.parallel_sides is None or side == "target":
        return run.prepared.split("train")
    return run.prepared.pairs("train").source


def _embedding(
    run: LoadedRun, side: SideName | None
) -> Embedding | SpelledEmbedding | TwoStreamEmbedding | nn.Embedding:
    model = run.model
    embedding = model.embedding if not isinstance(model, EncoderDecoder) else model.target
    if isinstance(model, EncoderDecoder) and side != "target" and model.source is not None:
        embedding = model.source
    if not isinstance(embedding, Embedding | SpelledEmbedding | TwoStreamEmbedding | nn.Embedding):
        raise UsageError(f"{run.run_dir}: its inputs are one-hot vectors; expected a model with embeddings")
    return embedding


def _frequent_words(tokenizer: TextTokenizer, text: Sequences, max_words: int) -> Iterator[tuple[str, int]]:
    counts = Counter[str]()
    with progress("Counting words", len(text), "lines") as advance:
        for index in track(range(len(text)), advance):
            counts.update(tokenizer.decode(text[index].tolist()).split(" "))
    yielded = 0
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        if yielded == max_words:
            return
        token = _only_token(tokenizer, word)
        if token is not None:
            yield word, token
            yielded += 1


def _only_token(tokenizer: TextTokenizer, word: str) -> int | None:
    """Return the token that a word is; None for a word that is several, or <unk>."""
    try:
        ids = word_ids(tokenizer, word)
    except TextError:  # what a decoder writes for invalid bytes need not be encodable
        return None
    known = len(ids) == 1 and tokenizer.vocabulary.symbols[ids[0]] != UNKNOWN_SYMBOL
    return ids[0] if known else None
