"""Scores from the analyses in a run folder, under pseudo-splits that replace the name of a split."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from structattn.settings.published import BLIMP, CHUNKING, CONTRASTIVE, NEIGHBOURS, PARSING
from structattn.support.json_files import read_json

Scores = dict[str, float]


def analysis_scores(run_dir: Path) -> dict[str, Scores]:
    """Return pseudo-split -> name of the score -> score, for the analyses that a run has.

    - ``contrastive``: accuracy by type of error, over all suites.
    - ``chunking``: accuracy, precision, recall and f1; of two streams ``syntactic_f1``, ``semantic_f1`` and so on.
    - ``parsing``: the same for labelled brackets but accuracy, ``exact``, ``unlabelled_f1``, ``malformed``, and
      ``right_branching_f1``; if several files were parsed, those of the last by name.
    - ``neighbours``: ``source_agreement``, or ``source_syntactic_agreement`` and so on.
    - ``blimp``: accuracy on the pairs of each field, phenomenon and paradigm, and on ``all``.

    Raises:
        DataError: an analysis is damaged.
    """
    found: dict[str, Scores] = {}
    for name, scores_of in _READERS.items():
        paths = sorted((run_dir / "analyses").glob(f"{name}*.json"))
        scores = [scores_of(read_json(path, "analysis")) for path in paths]
        if scores:
            found[name] = {key: value for each in scores for key, value in each.items()}
    return found


def _contrastive(analysis: Mapping[str, Any]) -> Scores:
    return {kind: proportion["value"] for kind, proportion in analysis["types"].items()}


def _chunking(analysis: Mapping[str, Any]) -> Scores:
    found: Scores = {}
    for each in analysis["streams"]:
        scores = each["scores"]
        values = {"accuracy": scores["accuracy"], **_plain(scores["overall"], "precision", "recall", "f1")}
        found |= {_of_stream(each["stream"], name): value for name, value in values.items()}
    return found


def _parsing(analysis: Mapping[str, Any]) -> Scores:
    return {
        **_plain(analysis["scores"]["labelled"], "precision", "recall", "f1", "exact"),
        "unlabelled_f1": analysis["scores"]["unlabelled"]["f1"],
        "malformed": analysis["malformed"],
        "right_branching_f1": analysis["right_branching"]["labelled"]["f1"],
    }


def _neighbours(analysis: Mapping[str, Any]) -> Scores:
    side = analysis["side"]
    return {f"{side}_{_of_stream(each['stream'], 'agreement')}": each["value"] for each in analysis["streams"]}


def _plain(scores: Mapping[str, float], *names: str) -> Scores:
    return {name: scores[name] for name in names}


def _of_stream(stream: str | None, name: str) -> str:
    return name if stream is None else f"{stream}_{name}"


def _blimp(analysis: Mapping[str, Any]) -> Scores:
    groups = {"all": analysis["overall"], **analysis["fields"], **analysis["phenomena"], **analysis["paradigms"]}
    return {name: accuracy["sentence"]["value"] for name, accuracy in groups.items()}


_READERS: dict[str, Callable[[Mapping[str, Any]], Scores]] = {
    CONTRASTIVE: _contrastive,
    CHUNKING: _chunking,
    PARSING: _parsing,
    NEIGHBOURS: _neighbours,
    BLIMP: _blimp,
}
