"""What topics take and return for a trained run: lists of texts and streams of them, ``TrainedRun``, and answers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from structattn.settings.embeddings import max_positions
from structattn.settings.run import RunSettings
from structattn.support.errors import DataError, UsageError, quoted
from structattn.support.progress import Advance, show_nothing
from structattn.support.shapes import Float
from structattn.text.folders.prepared import PreparedFolder

TEXTS_AT_ONCE: Final = 4096
"""The number of texts that are sorted and computed together; the results do not depend on it."""

TEXTS: Final = Path("texts")  # in messages, in place of the path of a file, as below
TARGETS: Final = Path("targets")

Text = TypeVar("Text")
Result = TypeVar("Result")


def require_no_string(texts: object) -> None:
    """Raise UsageError for a single string, which would be taken for the list of its characters."""
    if isinstance(texts, str):
        raise UsageError(f"got the text {quoted(texts)}; expected a list or an iterator of texts")


def require_texts(texts: Iterable[object], what: str = "texts", first: int = 1) -> None:
    """Raise UsageError for what is not a string; the message has its number."""
    for number, text in enumerate(texts, start=first):
        if not isinstance(text, str):
            raise UsageError(f"{what}:{number}: got {quoted(text)}; expected a string")


def require_counts(**values: object) -> None:
    """Raise UsageError for a value that is not a whole number of at least 1; the message has its name."""
    for name, value in values.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise UsageError(f"{name} is {quoted(value)}; expected a whole number of at least 1")
        if value < 1:
            raise UsageError(f"{name} is {value}; expected at least 1")


def in_chunks(texts: Iterable[Text], function: Callable[[list[Text], int], list[Result]]) -> Iterator[Result]:
    """Yield the result of each text, in their order; at most ``TEXTS_AT_ONCE`` texts are read ahead.

    Args:
        texts: read as the results are asked for.
        function: takes some texts and the number of the first of them, counted from 1; returns a result for each.

    Raises:
        UsageError: ``texts`` is a single string.
    """
    require_no_string(texts)
    rest, done = iter(texts), 0
    while chunk := list(islice(rest, TEXTS_AT_ONCE)):
        yield from function(chunk, done + 1)
        done += len(chunk)


if TYPE_CHECKING:
    from structattn.attention.protocols import Explanation
    from structattn.models.encoder_decoder import EncoderDecoder
    from structattn.models.language_model import LanguageModel, MaskedLanguageModel
    from structattn.models.recurrent.language_model import RecurrentLanguageModel

TrainedModel: TypeAlias = "EncoderDecoder | LanguageModel | MaskedLanguageModel | RecurrentLanguageModel"
Side = Literal["encoder", "decoder"]


class LoadedRun(Protocol):
    """A trained model with the settings and data of its run; see ``TrainedRun``."""

    @property
    def run_dir(self) -> Path:
        """The run folder."""

    @property
    def settings(self) -> RunSettings:
        """The resolved settings."""

    @property
    def prepared(self) -> PreparedFolder:
        """The data that the model was trained on."""

    @property
    def model(self) -> TrainedModel:
        """In evaluation mode."""

    @property
    def update(self) -> int:
        """The update after which the weights were saved; for averaged weights, the last one."""

    @property
    def accelerated(self) -> TrainedModel:
        """The same, or its fast form; see ``structattn.accelerate``."""


def cannot(run: LoadedRun, action: str, expected: str) -> UsageError:
    """Return the error of a run whose kind does not support an action."""
    kind, task = run.settings.model.kind, run.settings.task
    return UsageError(f"{run.run_dir}: a model of kind {kind!r} and task {task!r} cannot {action}; expected {expected}")


def require_positions(run: LoadedRun, length: int, number: int, path: Path = TEXTS) -> None:
    """Raise DataError if a text, for instance the second one, has more tokens than the model has positions."""
    maximum = max_positions(run.settings.model)
    if maximum is not None and length > maximum:
        raise DataError(path, f"the inputs have {length} tokens; the model has {maximum} positions", number)


@dataclass(frozen=True)
class Prediction:
    """The answer of a model to an input.

    Args:
        text: symbols of a transduction separated by spaces, a transformed sentence, or a bracketed tree; that of a line
            without words is empty.
        log_probability: of the answer given the input, in nats, <eos> included where the model predicts it; of a tree,
            that of its linearization, None of a repaired one.
        repaired: whether a tree was made of symbols that are not the linearization of a tree of these words.
    """

    text: str
    log_probability: float | None = None
    repaired: bool = False


class Predictor(Protocol):
    """Answers inputs independently of each other."""

    def __call__(
        self, inputs: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Prediction]:
        """Return the answer to each input.

        Raises:
            DataError: an input cannot be encoded, or is too long for the model.
        """


@dataclass(frozen=True)
class ExplainedLayer:
    """The explanation of one layer for one example.

    Args:
        tokens: the symbols of the queries' positions.
        memory: the symbols of the memory, for cross-attention; None: the same as ``tokens``.
        side: of an encoder-decoder, the side that the layer belongs to.
    """

    explanation: "Explanation"
    tokens: tuple[str, ...]
    memory: tuple[str, ...] | None = None
    side: Side | None = None


class Explainer(Protocol):
    """Makes batches of size 1 of the texts and examples of a run, and explains what the model does on them.

    The targets of a batch are <pad> where nothing is predicted: in texts of masked language models, and where the
    answer of a masked transduction is not given.
    """

    has_targets: ClassVar[bool]
    """Whether texts have targets: answers or translations."""

    def text(self, text: str, target: str | None, number: int) -> Any:
        """Return a text with its target as a batch; without a target, with the one that greedy search finds.

        Args:
            text: a line; several lines for a model of a stream.
            target: the answer or translation, for tasks with targets.
            number: of the text, for messages.

        Raises:
            DataError: the text or target cannot be encoded, or is too long for the model.
        """

    def example(self, split: str, index: int) -> Any:
        """Return an example of a split as a batch, with the inputs of training, but without masks."""

    def layers(self, batch: Any) -> list[ExplainedLayer]:
        """Return the explanations of all layers, those of an encoder-decoder under teacher forcing."""

    def surprisal(self, batch: Any) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return the id that is predicted at each position, <pad> for none, and its -log p in nats, there undefined.

        A masked language model predicts each token of a text from all others.
        """
