"""Translations and log-probabilities of given translations, line by line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch

from structattn.decoding import Ensemble, map_in_batches, max_target_lengths
from structattn.decoding.sampling import SeededSampling
from structattn.models import EncoderDecoder
from structattn.settings.evaluation import EvaluationSettings
from structattn.support.devices import Precision, device_of, require_precision
from structattn.support.errors import UsageError, quoted
from structattn.support.progress import Advance, show_nothing
from structattn.support.special_tokens import EOS
from structattn.tasks.loaded import LoadedRun, require_counts
from structattn.tasks.scores import Score, score_of
from structattn.tasks.translation.pairs import EncodedPair, PairEncoder
from structattn.tasks.translation.predict import SEARCHES, Translation, Translator
from structattn.tasks.translation.predictions import Predictions, predictions, translation_model
from structattn.tasks.translation.unknown_words import Unknown
from structattn.text.batching.pairs import PairBatch
from structattn.text.folders.parallel import ParallelSides

SOURCES, TRANSLATIONS = Path("sources"), Path("translations")  # in messages, in place of the paths of files


@dataclass(frozen=True)
class PairScorer:
    """Computes log p(translation | source) for each pair independently.

    Args:
        models: in evaluation mode; several form an ensemble that averages probabilities. Words predicted as <unk> are
            spelled if all models have a spelling decoder; otherwise ``<unk>`` is scored as a token.
        sides: normalization and tokenizers of both languages.
        batch_tokens: the maximum padded size of a batch. Memory is for about batch_tokens * classes numbers for each
            model, three times as many for an ensemble.
        batch_size: the maximum number of pairs of a batch; None: any.
        per_token: whether to return the scores of the tokens.
    """

    models: tuple[EncoderDecoder, ...]
    sides: ParallelSides
    batch_tokens: int = 4096
    batch_size: int | None = None
    per_token: bool = False

    @cached_property
    def _encoder(self) -> PairEncoder:
        return PairEncoder(self.models, self.sides)

    def encode(self, source: str, target: str, paths: tuple[Path, Path], number: int) -> EncodedPair:
        """Normalize and encode a pair; see ``PairEncoder``."""
        return self._encoder(source, target, paths, number)

    def score_texts(
        self,
        pairs: Sequence[tuple[str, str]],
        first: int = 1,
        paths: tuple[Path, Path] = (SOURCES, TRANSLATIONS),
        advance: Advance = show_nothing,
    ) -> list[Score]:
        """Encode and score pairs of a source line and its translation.

        Args:
            pairs: of lines.
            first: the number of the first pair, for messages.
            paths: of the files of sources and translations, for messages.
            advance: called with the number of pairs that have been scored since.

        Raises:
            DataError: a line cannot be encoded, or is too long for a model.
            UsageError: what is given is not a pair.
        """
        for number, pair in enumerate(pairs, first):
            if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise UsageError(
                    f"texts:{number}: got {quoted(pair)}; expected pairs of a source line and its translation"
                )
        encoded = [self.encode(*pair, paths, number) for number, pair in enumerate(pairs, first)]
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        self._encoder.warn_of_unknown("source", sources, [each.source for each in encoded], paths[0], count(first))
        self._encoder.warn_of_unknown("target", targets, [each.target for each in encoded], paths[1], count(first))
        return self(encoded, advance)

    def __call__(self, pairs: Sequence[EncodedPair], advance: Advance = show_nothing) -> list[Score]:
        """Return the score of each pair; ``advance`` is called with the number of pairs that have been scored since."""
        symbols = self.sides.target.vocabulary.symbols

        def score(pairs: list[EncodedPair]) -> list[Score]:
            losses = self._predictions(self._encoder.batch(pairs)).token_losses().tolist()
            advance(len(pairs))
            targets = [(*pair.target, EOS) for pair in pairs]
            return [
                score_of(symbols, ids, [-loss for loss in row[: len(ids)]], self.per_token)
                for ids, row in zip(targets, losses, strict=True)
            ]

        lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in pairs]
        return map_in_batches(pairs, lengths, self.batch_tokens, score, self.batch_size)

    @torch.no_grad()
    def _predictions(self, batch: PairBatch) -> Predictions:
        of_models = [predictions(model, batch) for model in self.models]
        if len(of_models) == 1:
            return of_models[0]
        mean = Ensemble(self.models).mean
        words = Predictions(mean([each.logits for each in of_models]), of_models[0].classes)
        characters = [each.character_logits for each in of_models if each.character_logits is not None]
        if len(characters) < len(of_models):
            return words
        return replace(of_models[0], logits=words.logits, character_logits=mean(characters))


def make_translator(
    runs: Sequence[LoadedRun],
    how: EvaluationSettings | None = None,
    precision: Precision = "float32",
) -> Translator:
    """Return a translator with the model of a run, or with an ensemble of the models of several runs.

    Args:
        runs: translation runs.
        how: beam search, length limits and unknown words; by default the evaluation settings of the first run.
        precision: of products; see ``Translator``.

    Raises:
        UsageError: a run is not a translation run or was trained with another tokenizer than the first, or the models
            do not support the treatment of unknown words; or the precision is unknown, or slow on the device.
    """
    for run in runs:
        require_precision(precision, device_of(run.model))
    how = how or runs[0].settings.evaluation
    models, sides = _models(runs), runs[0].prepared.sides
    limits = partial(
        max_target_lengths, ratio=how.max_length_ratio, extra=how.max_length_offset, maximum=how.max_length
    )
    unknown = _unknown_word_method(how.unknown_words, models, sides)
    exponent = () if how.length_penalty is None else (how.length_penalty,)
    search = SEARCHES[how.search](how.beam_size, *exponent)
    return Translator(models, sides, search, limits, unknown=unknown, precision=precision)


def make_pair_scorer(runs: Sequence[LoadedRun]) -> PairScorer:
    """Return a scorer of given translations with the model of a run, or with an ensemble of several.

    Raises:
        UsageError: a run is not a translation run, or was trained with another tokenizer than the first.
    """
    return PairScorer(_models(runs), runs[0].prepared.sides)


def make_text_pair_scorer(
    run: LoadedRun, per_token: bool, batch_size: int
) -> Callable[[Sequence[tuple[str, str]], int], list[Score]]:
    """Return a scorer of pairs of a source line and its translation; see ``make_pair_scorer``."""
    return replace(make_pair_scorer([run]), per_token=per_token, batch_size=batch_size).score_texts


SETTINGS_OF_SEARCH: Final = ("search", "beam_size", "length_penalty")
"""What beam search alone depends on."""
SETTINGS_OF_OUTPUT: Final = ("max_length_ratio", "max_length_offset", "max_length", "unknown_words")
"""What samples depend on, too: how long translations are, and how unknown words are written."""


def make_line_translator(
    run: LoadedRun,
    n: int,
    sampling: SeededSampling | None,
    precision: Precision,
    batch_size: int,
    evaluation: Mapping[str, Any],
    *,
    aligns: bool = False,
) -> Callable[[Sequence[str], int], list[list[Translation]]]:
    """Return a function of lines and the number of the first: the ``n`` best translations of each.

    The arguments are those of ``TrainedRun.translate``.

    Raises:
        UsageError: the run is of another kind, an argument is out of its range, or a setting is invalid or changes no
            translation.
    """
    require_counts(n=n)
    own = run.settings.evaluation
    search = own.changed({"beam_size": max(n, own.beam_size) if sampling is None else own.beam_size, **evaluation})
    allowed = SETTINGS_OF_OUTPUT if sampling is not None else (*SETTINGS_OF_SEARCH, *SETTINGS_OF_OUTPUT)
    if others := [name for name in evaluation if name not in allowed]:
        how = "translation" if sampling is None else "sampling"
        raise UsageError(f"{', '.join(others)}: not a setting of {how}; expected {', '.join(allowed)}")
    if sampling is None and n > search.beam_size:
        raise UsageError(f"n is {n}; expected 1 to {search.beam_size}, the size of the beam")
    translator = make_translator([run], search, precision)
    translator = replace(translator, sampling=sampling, batch_size=batch_size, aligns=aligns)
    return lambda lines, first: translator(lines, n, first=first)


def _models(runs: Sequence[LoadedRun]) -> tuple[EncoderDecoder, ...]:
    models = tuple(translation_model(run) for run in runs)
    for run in runs[1:]:
        if run.prepared.sides.digests() != runs[0].prepared.sides.digests():
            raise UsageError(f"{run.run_dir}: was trained with another tokenizer than {runs[0].run_dir}")
    return models


def _unknown_word_method(unknown: Unknown | None, models: Sequence[EncoderDecoder], sides: ParallelSides) -> Unknown:
    spell = all(model.spelling is not None for model in models)
    if unknown == "copy" and sides.level != "word":
        raise UsageError(f"unknown 'copy' needs data of level 'word'; the level of the data is {sides.level!r}")
    if unknown == "spell" and not spell:
        raise UsageError("unknown 'spell' needs a model with model.decoder.spelling")
    return unknown or ("spell" if spell else "keep")
