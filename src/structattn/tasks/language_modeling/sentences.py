"""Sentences in the form in which a corpus writes them, and their log-probabilities by a run."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from structattn.models import MaskedLanguageModel
from structattn.support.errors import UsageError
from structattn.support.shapes import Float64
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.language_modeling.evaluate import BATCH_TOKENS, line_token_losses, max_batch_tokens
from structattn.tasks.loaded import LoadedRun, require_positions
from structattn.text.tokenization.tokenizers import locate_errors
from structattn.text.tokenization.vocabulary import is_unknown_class

_MARKS = r"[.,;:?!]"
_SEPARATE_STOP = re.compile(r"(?<!\S)\.(?!\S)")
_ATTACHED_STOP = re.compile(r"(?<=\w)\.(?!\S)")
_SEPARATE_NEGATION = re.compile(r"(?<!\S)n't(?!\S)")


@dataclass(frozen=True)
class WrittenForm:
    """Rewrites untokenized English in the form of a corpus; words are separated by single spaces.

    Args:
        separate_marks: write punctuation marks and the ends of contractions as words: ``Bo isn't here.`` becomes
            ``Bo isn 't here .``, the form of WikiText.
        separate_negations: where marks are separated, write ``is n't``, the form of the Penn Treebank.
        lowercase: convert to lower case.
    """

    separate_marks: bool = False
    separate_negations: bool = False
    lowercase: bool = False

    def __call__(self, sentence: str) -> str:
        """Return the sentence in this form."""
        if self.separate_marks:
            contraction = r"n't\b|'\w*" if self.separate_negations else r"'\w*"
            sentence = re.sub(f"({contraction}|{_MARKS})", r" \1 ", sentence)
        if self.lowercase:
            sentence = sentence.lower()
        return " ".join(sentence.split())

    @classmethod
    def of_corpus(cls, text: str, symbols: Collection[str], separate_marks: bool | None = None) -> "WrittenForm":
        """Return the form of a corpus.

        Negations are separated if ``n't`` is a word of the text; sentences are converted to lower case if no symbol has
        an upper-case letter.

        ``text`` is its beginning. ``separate_marks``: whether marks are separated; None: if more full stops of
        the text are words of their own than end a word.
        """
        if separate_marks is None:
            separate_marks = len(_SEPARATE_STOP.findall(text)) > len(_ATTACHED_STOP.findall(text))
        lowercase = not any(symbol != symbol.lower() for symbol in symbols if not is_unknown_class(symbol))
        return cls(separate_marks, separate_marks and _SEPARATE_NEGATION.search(text) is not None, lowercase)


@dataclass(frozen=True)
class Span:
    """Tokens ``start`` to ``stop`` of a line; position ``len(line)`` is the ``<eos>`` after it."""

    line: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class SentenceScorer:
    """Encodes sentences with the tokenizer of a run, and scores them with its model.

    The model of a corpus of sentences is a distribution over sentences: a sentence follows ``<bos>``, and its ``<eos>``
    is scored. In a stream of lines, which hold many sentences, a sentence follows the ``<eos>`` of the line before it,
    and the line goes on.

    Args:
        run: of the task ``language_modeling``, with a model that predicts each token from those before it.
        form: in which sentences are written before they are encoded.

    Raises:
        UsageError: the run is of another task, or its model sees the tokens on both sides.
    """

    run: LoadedRun
    form: WrittenForm

    def __post_init__(self) -> None:
        task, kind = self.run.settings.task, self.run.settings.model.kind
        if task != "language_modeling" or isinstance(self.run.model, MaskedLanguageModel):
            raise UsageError(
                f"{self.run.run_dir}: a model of kind {kind!r} and task {task!r} gives sentences no probability; "
                "expected a causal model of the task 'language_modeling'"
            )

    @property
    def is_stream(self) -> bool:
        """Whether the model was trained on a stream of lines."""
        return self.run.prepared.kind == "stream"

    def encode(self, text: str, path: Path, line: int) -> tuple[int, ...]:
        """Return the ids of a sentence or of its beginning.

        Raises:
            DataError: it cannot be encoded, or is too long for the model.
        """
        with locate_errors(path, line, 0, exact=False):
            ids = tuple(self.run.prepared.tokenizer.encode(self.form(text)))
        require_positions(self.run, 1 + len(ids), line, path)
        return ids

    def sentence(self, ids: tuple[int, ...]) -> Span:
        """Return what is scored of a sentence: all tokens, and ``<eos>`` unless the data are a stream."""
        return Span(ids, 0, len(ids) + (not self.is_stream))

    def description(self) -> dict[str, Any]:
        """Return how sentences are scored, for files of scores."""
        start = "<eos>" if self.is_stream else "<bos>"
        return {"start": start, "eos_scored": not self.is_stream, **asdict(self.form)}

    def has_unknown(self, ids: Sequence[int]) -> bool:
        """Return whether a token is ``<unk>`` or a class of unknown words."""
        return not set(self.run.prepared.tokenizer.unknown_ids).isdisjoint(ids)

    def token_losses(
        self, lines: Iterable[tuple[int, ...]], what: str
    ) -> dict[tuple[int, ...], Float64[np.ndarray, " tokens"]]:
        """Return -log p of each token of each line, and of the ``<eos>`` after it, given the tokens before, in nats.

        Cost: each distinct line is scored once, so that equal lines have equal scores.
        """
        distinct = list(dict.fromkeys(lines))
        size = min(BATCH_TOKENS, max_batch_tokens(self.run.prepared.vocabulary.size))
        losses = line_token_losses(self.run.accelerated, distinct, size, what, EOS if self.is_stream else BOS)
        return dict(zip(distinct, losses, strict=True))

    def log_probabilities(self, spans: Sequence[Span], what: str) -> Float64[np.ndarray, " spans"]:
        """Return log p of the tokens of each span, given the tokens before them, in nats."""
        losses = self.token_losses((span.line for span in spans), what)
        return np.array([-losses[span.line][span.start : span.stop].sum() for span in spans], dtype=np.float64)
