"""Log-probabilities of sentences and of parts of sentences under a language model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from structattn.data.text.english import WrittenForm
from structattn.data.tokenization.tokenizers import locate_errors
from structattn.evaluation.cross_entropy import line_token_losses
from structattn.inference.trained_run import TrainedRun
from structattn.models import MaskedLanguageModel
from structattn.settings.positions import max_positions
from structattn.support.errors import DataError, UsageError
from structattn.support.special_tokens import BOS, EOS, UNK

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

    run: TrainedRun
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

        Args:
            text: untokenized.
            path: the file, for messages.
            line: its line.

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

        Args:
            spans: parts of lines.
            what: a name for the progress bar.
        """
        lines = list(dict.fromkeys(span.line for span in spans))
        size = min(_MAX_BATCH_TOKENS, max(1, _MAX_LOGITS // self.run.prepared.vocabulary.size))
        found = line_token_losses(self.run.accelerated, lines, size, what, EOS if self.is_stream else BOS)
        losses = dict(zip(lines, found, strict=True))
        return np.array([-losses[span.line][span.start : span.stop].sum() for span in spans], dtype=np.float64)
