"""A trained run as an object: its model, settings and data, and what it answers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

import numpy as np
import torch

from structattn.acceleration import accelerate
from structattn.loading.records import Record, explain_texts
from structattn.runs.folder import RunFolder
from structattn.settings.run import RunSettings
from structattn.support.devices import Precision, autocast, count_parameters, device_of
from structattn.support.errors import UsageError
from structattn.support.imports import lazy_function
from structattn.support.shapes import Float
from structattn.tasks.loaded import (
    Prediction,
    TrainedModel,
    in_chunks,
    require_counts,
    require_no_string,
    require_texts,
)
from structattn.tasks.registry import kind_of
from structattn.text.folders.prepared import PreparedFolder

if TYPE_CHECKING:
    from structattn.decoding.sampling import seeded_sampling
    from structattn.loading.word_vectors import embed_words
    from structattn.tasks.language_modeling.generator import Generation, GenerationSettings
    from structattn.tasks.scores import Score
    from structattn.tasks.translation.predict import Translation
    from structattn.tasks.translation.translators import make_line_translator
else:  # each is imported when it is first called
    seeded_sampling = lazy_function("structattn.decoding.sampling", "seeded_sampling")
    embed_words = lazy_function("structattn.loading.word_vectors", "embed_words")
    make_line_translator = lazy_function("structattn.tasks.translation.translators", "make_line_translator")

_generation_settings: "Callable[..., GenerationSettings]" = lazy_function(
    "structattn.tasks.language_modeling.generator", "GenerationSettings"
)
Text = TypeVar("Text")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TrainedRun:
    """A trained model with the settings and data of its run.

    Args:
        prepared: the data that the model was trained on, with its vocabulary and tokenizer.
        model: in evaluation mode, on its device.
        update: the update after which the weights were saved; for averaged weights, the last one.
        averaged_updates: the updates of all checkpoints whose weights were averaged, the last first.
        digests: the SHA-256 of the weights of each of these checkpoints; none for a model that was not loaded.
        precision: of the products in the methods below; see ``load``.

    A pickled run is its folder, checkpoints and digests, from which it is loaded again: weights are not pickled, and
    changes of them are lost. A deep copy has a model of its own.
    """

    run_dir: Path
    settings: RunSettings
    prepared: PreparedFolder
    model: TrainedModel
    update: int
    averaged_updates: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    precision: Precision = "float32"

    def __repr__(self) -> str:
        count = count_parameters(self.model)
        kind, task = self.settings.model.kind, self.settings.task
        return f"TrainedRun({str(self.run_dir)!r}: {kind} of {count:,} parameters, {task}, update {self.update})"

    def __reduce__(self) -> NoReturn:
        """Refuse: ``loading.runs``, which loads runs, pickles those that it has loaded."""
        raise UsageError(f"{self.run_dir}: was not loaded from a checkpoint; pickle the weights of its model instead")

    def __copy__(self) -> "TrainedRun":
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "TrainedRun":
        return replace(self, model=deepcopy(self.model, memo))

    @cached_property
    def accelerated(self) -> TrainedModel:
        """What computes the model in the methods below: ``accelerate(run.model)``."""
        return accelerate(self.model)

    @property
    def _device(self) -> torch.device:
        return device_of(self.model)

    def _computing(self) -> torch.autocast:
        return autocast(self._device, self.precision)

    def _answers(
        self, texts: Iterable[Text], function: Callable[[list[Text], int], list[Result]]
    ) -> list[Result] | Iterator[Result]:
        """Return a list for a list of texts, and an iterator for an iterator; computed in the precision of the run."""

        def computed(chunk: list[Text], first: int) -> list[Result]:
            with self._computing():
                return function(chunk, first)

        results = in_chunks(texts, computed)
        return results if isinstance(texts, Iterator) else list(results)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The run card, ``run.json``: version, seed, digests, environment, hardware and result of training.

        Raises:
            StructattnError: it is missing or damaged.
        """
        return RunFolder(self.run_dir).read_card()

    @overload
    def generate(
        self, prompts: Sequence[str] | None = None, n: int = 1, **options: Any
    ) -> "list[list[Generation]]": ...

    @overload
    def generate(self, prompts: Iterator[str], n: int = 1, **options: Any) -> "Iterator[list[Generation]]": ...

    def generate(
        self,
        prompts: Iterable[str] | None = None,
        n: int = 1,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        beam: int | None = None,
        seed: int = 0,
        *,
        stop: Sequence[str] = (),
        max_length: int = 500,
        batch_size: int = 64,
        lines: int = 1,
    ) -> "list[list[Generation]] | Iterator[list[Generation]]":
        """Continue prompts with a language model of text or of a formal language; the command ``structattn generate``.

        Args:
            prompts: the beginnings of the texts; None for one empty prompt. The results for a list are a list; those
                for an iterator are an iterator, and at most 4,096 prompts are read ahead.
            n: the number of texts for each prompt.
            temperature: logits are divided by it; 0 takes the most probable token at each step.
            top_k: sample from the k most probable tokens; None: from all.
            top_p: sample from the fewest most probable tokens of this total probability, in (0, 1]; None: from all.
            beam: search for the n most probable texts with a beam of this size, instead of sampling.
            seed: sample j of prompt i is a function of (seed, i, j) and the prompt, whatever the batch.
            stop: strings at whose first occurrence a continuation ends; they are left out.
            max_length: the maximal number of tokens of a continuation.
            batch_size: the number of texts that are generated at once; affects speed and memory only.
            lines: the number of ends of lines at which a continuation ends, with a model of a stream.

        Raises:
            DataError: a prompt cannot be encoded, or is too long for the model.
            UsageError: the run is of another kind, or an argument is out of its range.
        """
        require_no_string(stop)
        stop = tuple(stop)
        require_texts(stop, "stop")
        how = (temperature, top_k, top_p, beam, seed, stop, max_length, batch_size, lines)
        generator = kind_of(self).generator(self, _generation_settings(n, *how))
        return self._answers([""] if prompts is None else prompts, _of_texts(generator))

    @overload
    def score(self, texts: Sequence[str] | Sequence[tuple[str, str]], **options: Any) -> "list[Score]": ...

    @overload
    def score(self, texts: Iterator[str] | Iterator[tuple[str, str]], **options: Any) -> "Iterator[Score]": ...

    def score(
        self,
        texts: Iterable[str] | Iterable[tuple[str, str]],
        *,
        per_token: bool = False,
        batch_size: int = 64,
    ) -> "list[Score] | Iterator[Score]":
        """Return the log-probability of each text in nats, as ``structattn score`` writes it.

        Args:
            texts: for a language model, lines; for a masked one, which gives their pseudo-log-probabilities, too; for a
                translation model, pairs of a source line and its translation. The results for a list are a list; those
                for an iterator are an iterator, and at most 4,096 texts are read ahead.
            per_token: whether to return the scores of the tokens.
            batch_size: the number of texts that are scored at once; affects speed and memory only.

        Raises:
            DataError: a text cannot be encoded, or is too long for the model.
            UsageError: the run is of another kind.
        """
        require_counts(batch_size=batch_size)
        scorer = kind_of(self).scorer(self, per_token, batch_size)  # that of translations checks its pairs itself
        is_parallel = self.prepared.parallel_sides is not None
        return self._answers(texts, scorer if is_parallel else _of_texts(scorer))

    @overload
    def translate(self, lines: Sequence[str], n: int = 1, **options: Any) -> "list[list[Translation]]": ...

    @overload
    def translate(self, lines: Iterator[str], n: int = 1, **options: Any) -> "Iterator[list[Translation]]": ...

    def translate(
        self,
        lines: Iterable[str],
        n: int = 1,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        batch_size: int = 64,
        precision: Precision | None = None,
        alignments: bool = False,
        **evaluation: Any,
    ) -> "list[list[Translation]] | Iterator[list[Translation]]":
        """Translate lines, as ``structattn translate`` does: the best translation of each line first.

        Args:
            lines: source lines. The results for a list are a list; those for an iterator are an iterator, and at most
                4,096 lines are read ahead.
            n: the number of translations of each line; the beam is at least as large.
            temperature: sample instead of searching, with logits divided by it.
            top_k: sample from the k most probable tokens.
            top_p: sample from the fewest most probable tokens of this total probability.
            seed: of samples, which depend on it, the line and the number of the sample alone.
            batch_size: the number of lines that are translated at once; affects speed and memory only.
            precision: of products, "float32" or "bf16"; None: as the run was loaded with, see ``load``.
            alignments: whether to return the word alignment of each translation, by cross-attention.
            **evaluation: evaluation settings other than those of the run: ``search``, ``beam_size``,
                ``length_penalty``, ``max_length_ratio``, ``max_length_offset``, ``max_length``, ``unknown_words``; for
                samples, the last four.

        Raises:
            DataError: a line cannot be encoded, or is too long for the model.
            UsageError: the run is of another kind, an argument is out of its range, or a setting is invalid or changes
                no translation.
        """
        require_counts(batch_size=batch_size)
        sampling = seeded_sampling(temperature, top_k, top_p, seed)
        chosen = self.precision if precision is None else precision
        translator = make_line_translator(self, n, sampling, chosen, batch_size, evaluation, aligns=alignments)
        return self._answers(lines, _of_texts(translator))

    @overload
    def predict(self, inputs: Sequence[str], batch_size: int = 64) -> list[Prediction]: ...

    @overload
    def predict(self, inputs: Iterator[str], batch_size: int = 64) -> Iterator[Prediction]: ...

    def predict(self, inputs: Iterable[str], batch_size: int = 64) -> list[Prediction] | Iterator[Prediction]:
        """Return the answer to each input, as ``structattn predict`` writes it.

        Args:
            inputs: inputs of a transduction, symbols separated by spaces; sentences of question formation or tense
                reinflection; strings to recognize; sentences to parse. The results for a list are a list; those for
                an iterator are an iterator, and at most 4,096 inputs are read ahead.
            batch_size: the number of inputs that are answered at once; affects speed and memory only.

        Raises:
            DataError: an input cannot be encoded, or is too long for the model.
            UsageError: the run is of another kind.
        """
        require_counts(batch_size=batch_size)
        return self._answers(inputs, _of_texts(kind_of(self).predictor(self, batch_size)))

    def embed(
        self, words: Sequence[str], side: Literal["source", "target"] | None = None, stream: str | None = None
    ) -> Float[np.ndarray, "words d_model"]:
        """Return the input embedding of each word, without positions.

        Args:
            words: each one token of the vocabulary.
            side: of a translation run; None: ``source``.
            stream: ``syntactic`` or ``semantic``, of a two-stream model.

        Raises:
            UsageError: a word is not one token; the model has no embeddings, or not this side or stream.
        """
        require_no_string(words)
        words = list(words)
        require_texts(words, "words")
        return embed_words(self, words, side, stream)

    def explain(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> "list[list[Record]]":
        """Return the attention weights of all layers and heads for each text, and the actions of stacks.

        Of a nondeterministic stack, ``actions`` of a ``Record`` depend on later tokens, and ``prefix_actions`` do not.

        Args:
            texts: lines of text; strings of a formal language; inputs of a transduction, symbols separated by spaces;
                source lines, for translation. A text for a model of a stream may have several lines.
            targets: answers of a transduction or translations, one for each text; None: greedy search finds them. A
                masked transduction predicts its answers, so it does not need them.

        Raises:
            DataError: a text or target cannot be encoded, or is too long for the model.
            UsageError: there is not one target for each text, or the task has no targets.
        """
        with self._computing():
            return explain_texts(self, texts, targets)


def _of_texts(function: Callable[[list[Any], int], list[Result]]) -> Callable[[list[Any], int], list[Result]]:
    """Return a function of some texts and the number of the first that refuses what is not a string."""

    def checked(texts: list[Any], first: int) -> list[Result]:
        require_texts(texts, first=first)
        return function(texts, first)

    return checked
