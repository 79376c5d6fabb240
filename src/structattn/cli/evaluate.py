"""``structattn evaluate``: score runs on splits of their data, or on a test suite."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from structattn.cli.options import Json, Runs, open_runs
from structattn.cli.output import print_json, print_warning
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.tasks.scores import SplitScores

Suite = Literal["blimp", "contrast", "chunking", "syntaxgym", "trees"]
Marks = Literal["auto", "attached", "separate"]


def evaluate(
    runs: Runs,
    split: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Split to score, repeatable.  [default: all but train]")
    ] = None,
    explain: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Number of examples of the last split to record.  [default: 1]"),
    ] = None,
    suite: Annotated[Suite | None, typer.Option(help="Score a test suite instead of splits.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="The file or folder of the suite.")] = None,
    marks: Annotated[
        Marks | None,
        typer.Option(
            help="blimp, syntaxgym: punctuation marks and contractions attached to words or separate.  [default: auto, "
            "as most full stops of the training data are]"
        ),
    ] = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="contrast: compare log-probabilities per token, not per sentence.")
    ] = False,
    json: Json = False,
) -> None:
    """Score runs on held-out data; write scores/, analyses/ and records/ to each run folder.

    Suites are stored in analyses/ and appear in reports, too. blimp, of language models: is the acceptable sentence of
    a minimal pair more likely (BLiMP's *.jsonl, a table as of MultiBLiMP or BLiMP-NL, or a folder of them)? contrast,
    of translation models: is the reference more likely than the same with an error (LingEval97 JSON, or a folder with
    src.*, tgt.correct.* and tgt.incorrect.*, or of such folders)? syntaxgym, of language models: do predictions about
    the surprisals of regions hold (a suite in JSON, or a folder of suites)? chunking: what does a linear layer find in
    the frozen top layer, of each stream (a folder with train.txt and test.txt of CoNLL-2000)? trees, of parsers:
    brackets as evalb scores them, beside right- and left-branching trees (a file of bracketed trees).

    Examples:
        structattn evaluate runs/stack runs/plain
        structattn evaluate runs/stack --split test evaluation.checkpoint=last
        structattn evaluate runs/de-en --suite contrast --file lingeval97.json
    """
    _require_fitting_options(suite, {"file": file, "marks": marks, "per-token": per_token})
    if suite is None:
        _evaluate_splits(runs, split, 1 if explain is None else explain, json)
        return
    if split or explain is not None:
        raise UsageError(f"--split and --explain are for splits of the data, not for --suite {suite}")
    if file is None:
        raise UsageError(f"--suite {suite} needs --file, the file or folder of the suite")
    from structattn.cli import suites

    if suite == "blimp":
        suites.blimp(runs, file, marks or "auto", json)
    elif suite == "syntaxgym":
        suites.syntaxgym(runs, file, marks or "auto", json)
    elif suite == "contrast":
        suites.contrast(runs, file, per_token, json)
    elif suite == "chunking":
        suites.chunking(runs, file, json)
    else:
        suites.trees(runs, file, json)


_SUITES_OF: Mapping[str, tuple[Suite, ...]] = {"marks": ("blimp", "syntaxgym"), "per-token": ("contrast",)}
"""The suites that options are for, if not for all."""


def _require_fitting_options(suite: Suite | None, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        wanted = _SUITES_OF.get(name, ())
        if value and (suite is None or suite not in (wanted or (suite,))):
            raise UsageError(f"--{name} is for --suite {' or '.join(wanted)}".rstrip())


def _evaluate_splits(runs: Sequence[str], split: list[str] | None, explain: int, json: bool) -> None:
    from structattn.cli.scores_table import print_scores
    from structattn.explorer.head_locality import write_locality
    from structattn.explorer.run_analysis import analyze_run
    from structattn.explorer.searched_text import default_examples
    from structattn.loading.evaluate import evaluate_run
    from structattn.tasks.scores import scores_to_json

    results = []
    for run in open_runs(runs, writes="scores"):
        splits = split or [name for name in run.prepared.splits if name != "train"]
        results += [(run.run_dir, evaluate_run(run, name)) for name in splits]
        if run.prepared.kind == "parallel":
            for name in splits:
                write_locality(run, name)
        analyze_run(run, splits[-1], default_examples(run, splits[-1], explain))
    if json:
        print_json([{"run": folder, **scores_to_json(scores)} for folder, scores in results])
    else:
        print_scores(results)
    _warn(results)


def _warn(results: "list[tuple[Path, SplitScores]]") -> None:
    """Say what makes scores hard to compare."""
    from structattn.report.tables import different_ends, worse_than_baselines
    from structattn.runs.folder import RunFolder

    scores: dict[str, dict[str, dict[str, Any]]] = {}
    for folder, score in results:
        scores.setdefault(str(folder), {})[score.split] = asdict(score)
    ends = different_ends({folder: RunFolder(Path(folder)).read_card()["result"] for folder in scores})
    for warning in [*([ends] if ends else []), *worse_than_baselines(scores)]:
        print_warning(warning)
