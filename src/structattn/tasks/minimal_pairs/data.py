"""Minimal pairs of sentences, how corpora of running text write them, and their log-likelihoods by a run."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from structattn.models import MaskedLanguageModel
from structattn.settings.embeddings import max_positions
from structattn.support.errors import DataError, UsageError
from structattn.support.json_files import Shape, check_shape
from structattn.support.reading import parse_json
from structattn.support.shapes import Float64
from structattn.support.special_tokens import BOS, EOS, UNK
from structattn.tasks.language_modeling.evaluate import line_token_losses
from structattn.tasks.loaded import LoadedRun
from structattn.text.reading import Line, Notices, read_lines
from structattn.text.tokenization.tokenizers import locate_errors

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

        Args:
            text: the beginning of the corpus.
            symbols: its vocabulary.
            separate_marks: whether marks are separated; None: if more full stops of the text are words of their own
                than end a word.
        """
        if separate_marks is None:
            separate_marks = len(_SEPARATE_STOP.findall(text)) > len(_ATTACHED_STOP.findall(text))
        lowercase = not any(symbol != symbol.lower() for symbol in symbols)
        return cls(separate_marks, separate_marks and _SEPARATE_NEGATION.search(text) is not None, lowercase)


_MAX_LOGITS = 1 << 24  # 64 MiB in float32: a batch that stays small also for large vocabularies
_MAX_BATCH_TOKENS = 8192


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
        maximum = max_positions(self.run.settings.model)
        if maximum is not None and len(ids) >= maximum:
            raise DataError(path, f"has {len(ids)} tokens; the model has {maximum} positions", line)
        return ids

    def sentence(self, ids: tuple[int, ...]) -> Span:
        """Return what is scored of a sentence: all tokens, and ``<eos>`` unless the data are a stream."""
        return Span(ids, 0, len(ids) + (not self.is_stream))

    def has_unknown(self, ids: Sequence[int]) -> bool:
        """Return whether a token is ``<unk>``."""
        return self.run.prepared.vocabulary.has_unknown and UNK in ids

    def log_probabilities(self, spans: Sequence[Span], what: str) -> Float64[np.ndarray, " spans"]:
        """Return log p of the tokens of each span, given the tokens before them, in nats.

        Cost: each distinct line is scored once, so that equal spans of equal lines have equal scores.
        """
        lines = list(dict.fromkeys(span.line for span in spans))
        size = min(_MAX_BATCH_TOKENS, max(1, _MAX_LOGITS // self.run.prepared.vocabulary.size))
        of_lines = line_token_losses(self.run.accelerated, lines, size, what, EOS if self.is_stream else BOS)
        losses = dict(zip(lines, of_lines, strict=True))
        return np.array([-losses[span.line][span.start : span.stop].sum() for span in spans], dtype=np.float64)


_FIELDS = {"syntax/semantics": "syntax_semantics"}
_PHENOMENA = {"s-selection": "argument_structure"}
PREFIX_METHODS = ("one_prefix", "two_prefix")


class Continuations(NamedTuple):
    """Two prefixes, and the words that continue each; the first continuation is the acceptable one."""

    prefixes: tuple[str, str]
    words: tuple[str, str]


@dataclass(frozen=True)
class MinimalPair:
    """An acceptable and an unacceptable sentence that differ minimally, and what each prefix method compares."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str
    continuations: dict[str, Continuations]
    path: Path
    line: int


def read_minimal_pairs(path: Path, notices: Notices) -> list[MinimalPair]:
    """Read minimal pairs in file order.

    Args:
        path: a file, or a folder with files ``*.jsonl`` or ``*.jsonl.gz``, which are read in the order of their names.
        notices: collects notices of reading.

    Raises:
        DataError: there are no pairs, or one is malformed.
    """
    paths = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
    pairs = [pair for each in paths for pair in _read(each, notices)]
    if not pairs:
        raise DataError(path, "holds no minimal pairs; expected BLiMP's *.jsonl or *.jsonl.gz, or a folder of them")
    return pairs


def _read(path: Path, notices: Notices) -> Iterator[MinimalPair]:
    for line in read_lines(path, notices):
        entry = _entry(path, line)
        field, phenomenon = entry["field"], entry["linguistics_term"]
        yield MinimalPair(
            good=entry["sentence_good"],
            bad=entry["sentence_bad"],
            paradigm=entry["UID"],
            phenomenon=_PHENOMENA.get(phenomenon, phenomenon),
            field=_FIELDS.get(field, field),
            continuations={
                method: _continuations(entry, method) for method in PREFIX_METHODS if entry.get(f"{method}_method")
            },
            path=path,
            line=line.number,
        )


_Text = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"\S")]


class _Pair(Shape):
    sentence_good: _Text
    sentence_bad: _Text
    UID: _Text
    linguistics_term: _Text
    field: _Text
    one_prefix_method: bool = False
    two_prefix_method: bool = False


class _OnePrefix(Shape):
    one_prefix_prefix: _Text
    one_prefix_word_good: _Text
    one_prefix_word_bad: _Text


class _TwoPrefix(Shape):
    two_prefix_prefix_good: _Text
    two_prefix_prefix_bad: _Text
    two_prefix_word: _Text


def _entry(path: Path, line: Line) -> dict[str, Any]:
    try:
        entry = parse_json(line.text.encode())
    except ValueError as error:
        raise DataError(path, f"not JSON: {error}", line.number) from None
    if not isinstance(entry, dict):
        raise DataError(path, f"holds {type(entry).__name__}; expected a JSON object", line.number)
    check_shape(_Pair, entry, path, line.number)
    for method, shape in (("one_prefix", _OnePrefix), ("two_prefix", _TwoPrefix)):
        if entry.get(f"{method}_method"):
            check_shape(shape, entry, path, line.number)
    return entry


def _continuations(entry: dict[str, Any], method: str) -> Continuations:
    if method == "one_prefix":
        prefix = entry["one_prefix_prefix"]
        return Continuations((prefix, prefix), (entry["one_prefix_word_good"], entry["one_prefix_word_bad"]))
    word = entry["two_prefix_word"]
    return Continuations((entry["two_prefix_prefix_good"], entry["two_prefix_prefix_bad"]), (word, word))
