"""SyntaxGym: do predictions about the surprisals of regions hold (Gauthier et al. 2020; Hu et al. 2020)?"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.support.environment import name_of
from structattn.support.errors import DataError, quoted
from structattn.support.grouping import grouped
from structattn.support.shapes import Float64
from structattn.tasks.language_modeling.sentences import SentenceScorer
from structattn.tasks.suite_analyses import write_suite_analysis
from structattn.tasks.syntaxgym.data import CIRCUITS, METRICS, NOT_COUNTED, STRICT, Item, Suite, sentence
from structattn.tasks.syntaxgym.formula import Surprisals
from structattn.text.tokenization.splitting import parts_of_tokens, parts_of_words
from structattn.text.tokenization.tokenizers import LEVELS


@dataclass(frozen=True)
class PredictionAccuracy:
    """The share of the items of which a prediction holds.

    Args:
        formula: the prediction; "all" for all predictions of the suite together.
        items: of all items.
        known: of the items without ``<unk>``; None if there is none.
    """

    formula: str
    items: Proportion
    known: Proportion | None


@dataclass(frozen=True)
class SuiteScores:
    """Scores of a suite, with intervals that take its items as independent trials.

    Args:
        name: as the suite states it.
        file: the name of its file, without ``.json``.
        metric: how surprisals of tokens became those of regions.
        overall: the share of the items of which all predictions hold.
        predictions: of each prediction, in file order.
        surprisals: item -> condition -> region -> surprisal in bits.
    """

    name: str
    file: str
    metric: str
    overall: PredictionAccuracy
    predictions: tuple[PredictionAccuracy, ...]
    surprisals: dict[int, dict[str, dict[int, float]]]


def suite_scores(scorer: SentenceScorer, suite: Suite) -> SuiteScores:
    """Score a suite.

    The surprisal of a region is that of the tokens that begin in it, see ``parts_of_tokens``, given all tokens before
    them; that of the ``<eos>`` belongs to no region.

    Raises:
        DataError: a sentence cannot be encoded or is too long for the model; the message names item and condition.
    """
    sentences = [_Sentence.of(scorer, suite, item, name) for item in suite.items for name in item.conditions]
    losses = scorer.token_losses((each.ids for each in sentences), name_of(suite.path))
    surprisals: dict[int, dict[str, dict[int, float]]] = {item.number: {} for item in suite.items}
    for each in sentences:
        surprisals[each.item][each.condition] = each.surprisals(losses[each.ids] / math.log(2), suite.metric)
    unknown = {each.item for each in sentences if scorer.has_unknown(each.ids)}
    return scores_of_surprisals(suite, surprisals, unknown)


def scores_of_surprisals(
    suite: Suite, surprisals: dict[int, dict[str, dict[int, float]]], unknown: Collection[int] = ()
) -> SuiteScores:
    """Return the scores of given surprisals: item -> condition -> region -> surprisal.

    ``unknown`` are the items with ``<unk>``.
    """

    def accuracy(formula: str, holds: Sequence[bool]) -> PredictionAccuracy:
        known = [each for each, item in zip(holds, suite.items, strict=True) if item.number not in unknown]
        return PredictionAccuracy(formula, wilson_interval(holds), wilson_interval(known) if known else None)

    flat = [_by_region(surprisals[item.number]) for item in suite.items]
    holds = [[formula.holds(of_item) for of_item in flat] for formula in suite.predictions]
    predictions = tuple(accuracy(formula.text, each) for formula, each in zip(suite.predictions, holds, strict=True))
    overall = accuracy("all", [all(each) for each in zip(*holds, strict=True)])
    return SuiteScores(suite.name, suite.file, suite.metric, overall, predictions, surprisals)


def model_scores(suites: Sequence[SuiteScores]) -> dict[str, float]:
    """Return the scores of a model over several suites: name -> score.

    - ``mean_of_suites``, ``mean_of_items``, and the mean of the suites of each circuit, see ``CIRCUITS``: of the first
      prediction of each suite, as in published numbers: the second of fgd_hierarchy is an equality, which never holds.
      With ``STRICT`` behind the name: of all predictions.
    - ``items_without_unk``: the share of the items in which all words are known.

    Those of ``NOT_COUNTED`` do not count; empty if there are no others.
    """
    counted = [each for each in suites if each.file not in NOT_COUNTED]
    if not counted:
        return {}
    trials = sum(each.overall.items.trials for each in counted)
    by_circuit = grouped(range(len(counted)), lambda index: CIRCUITS.get(counted[index].file.partition("_")[0]))
    found = {}
    for end, rows in (
        ("", [each.predictions[0].items for each in counted]),
        (STRICT, [each.overall.items for each in counted]),
    ):
        found[f"mean_of_suites{end}"] = fmean(each.value for each in rows)
        found[f"mean_of_items{end}"] = sum(each.successes for each in rows) / trials
        for circuit, members in by_circuit.items():
            if circuit is not None:
                found[f"{circuit}{end}"] = fmean(rows[index].value for index in members)
    known = sum(each.overall.known.trials for each in counted if each.overall.known is not None)
    return {**found, "items_without_unk": known / trials}


def write_suite(scorer: SentenceScorer, suite: Suite, scores: SuiteScores) -> Path:
    """Write the scores to ``analyses/syntaxgym-FILE.json`` in the run folder."""
    content = {"scoring": scorer.description(), **asdict(scores)}
    return write_suite_analysis(scorer.run, f"syntaxgym-{suite.file}", "syntaxgym", content, [suite.path])


def write_model(scorer: SentenceScorer, suites: Sequence[Suite], scores: Mapping[str, float]) -> Path:
    """Write the scores over several suites, see ``model_scores``, to ``analyses/syntaxgym.json`` in the run folder."""
    content = {"scoring": scorer.description(), "suites": [each.file for each in suites], "scores": dict(scores)}
    return write_suite_analysis(scorer.run, "syntaxgym", "syntaxgym_scores", content, (each.path for each in suites))


def _by_region(conditions: Mapping[str, Mapping[int, float]]) -> Surprisals:
    return {(name, number): value for name, regions in conditions.items() for number, value in regions.items()}


@dataclass(frozen=True)
class _Sentence:
    """The sentence of a condition of an item: its ids, and the region of each, an index into ``regions``."""

    item: int
    condition: str
    ids: tuple[int, ...]
    region_of: Sequence[int]
    regions: Sequence[int]

    @classmethod
    def of(cls, scorer: SentenceScorer, suite: Suite, item: Item, condition: str) -> "_Sentence":
        tokenizer, regions = scorer.run.prepared.tokenizer, item.conditions[condition]
        contents = [*regions.values()]

        def encode(text: str) -> tuple[int, ...]:
            return scorer.encode(text, suite.path, item.number)

        try:
            ids = encode(whole := sentence(contents))
            if tokenizer.reads_words:  # <unk> does not have the characters of its word
                written = [tokenizer.normalized(scorer.form(text)) for text in (whole, *contents)]
                region_of = parts_of_words(LEVELS["word"].split(written[0]), written[1:])
            else:
                # from the start: alone, a region may have an <unk> that it shares with the one before it
                ends = [tokenizer.decode(encode(sentence(contents[: n + 1]))) for n in range(len(contents))]
                parts = [text[len(before) :] for before, text in pairwise(["", *ends])]
                region_of = parts_of_tokens(tokenizer, ids, parts)
        except (DataError, ValueError) as error:
            reason = error.reason if isinstance(error, DataError) else error
            raise DataError(suite.path, f"item {item.number}, condition {quoted(condition)}: {reason}") from None
        return cls(item.number, condition, ids, region_of, [*regions])

    def surprisals(self, of_tokens: Float64[np.ndarray, " tokens"], metric: str) -> dict[int, float]:
        """Return the surprisal of each region, given those of the tokens and the ``<eos>`` after them."""
        parts = [of_tokens[:-1][np.equal(self.region_of, index)] for index in range(len(self.regions))]
        values = [float(METRICS[metric](part)) if len(part) else 0.0 for part in parts]
        return dict(zip(self.regions, values, strict=True))
