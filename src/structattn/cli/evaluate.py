"""``structattn evaluate``: score runs on splits of their data, or on a test suite."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from structattn.cli.options import Json, Runs, open_runs, overrides_of
from structattn.cli.output import literal, numbers_table, print_json, print_line, print_table
from structattn.support.errors import UsageError

if TYPE_CHECKING:
    from structattn.loading.trained_run import TrainedRun
    from structattn.tasks.chunking.evaluate import StreamScores
    from structattn.tasks.chunking.metrics import TaggingScores
    from structattn.tasks.language_modeling.sentences import SentenceScorer
    from structattn.tasks.parsing.evaluate import ParsingScores
    from structattn.tasks.scores import SplitScores
    from structattn.tasks.syntaxgym.evaluate import SuiteScores
    from structattn.tasks.translation.contrastive import ContrastiveScores

Scores = TypeVar("Scores")
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
        _require_stored_settings(runs)
        _evaluate_splits(runs, split, 1 if explain is None else explain, json)
        return
    if split or explain is not None:
        raise UsageError(f"--split and --explain are for splits of the data, not for --suite {suite}")
    if file is None:
        raise UsageError(f"--suite {suite} needs --file, the file or folder of the suite")
    if suite == "blimp":
        _blimp(runs, file, marks or "auto", json)
    elif suite == "syntaxgym":
        _syntaxgym(runs, file, marks or "auto", json)
    elif suite == "contrast":
        _contrast(runs, file, per_token, json)
    elif suite == "chunking":
        _chunking(runs, file, json)
    else:
        _trees(runs, file, json)


_SUITES_OF: Mapping[str, tuple[Suite, ...]] = {"marks": ("blimp", "syntaxgym"), "per-token": ("contrast",)}
"""The suites that options are for, if not for all."""


def _require_fitting_options(suite: Suite | None, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        wanted = _SUITES_OF.get(name, ())
        if value and (suite is None or suite not in (wanted or (suite,))):
            raise UsageError(f"--{name} is for --suite {' or '.join(wanted)}".rstrip())


def _require_stored_settings(runs: Sequence[str]) -> None:
    """Scores of splits are compared with each other: nothing but the checkpoint may differ from the run's settings."""
    others = [name for name in overrides_of(runs)[1] if name != "checkpoint"]
    if others:
        raise UsageError(
            f"evaluation.{others[0]}: splits are scored with the settings of the run; only data and "
            "evaluation.checkpoint can be replaced"
        )


def _evaluate_splits(runs: Sequence[str], split: list[str] | None, explain: int, json: bool) -> None:
    from structattn.cli.scores_table import print_scores
    from structattn.explorer.head_locality import write_locality
    from structattn.explorer.run_analysis import analyze_run
    from structattn.explorer.searched_text import default_examples
    from structattn.loading.evaluate import evaluate_run
    from structattn.tasks.scores import scores_to_json

    results = []
    for run in open_runs(runs):
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
        print_line(f"warning: {warning}", error=True)


def _score_runs(
    runs: Sequence[str],
    score: "Callable[[TrainedRun], Scores]",
    show: "Callable[[Sequence[tuple[Path, Scores]]], None]",
    json: bool,
) -> None:
    results = [(run.run_dir, score(run)) for run in open_runs(runs)]
    if json:
        print_json([{"run": folder, "scores": scores} for folder, scores in results])
    else:
        show(results)


def _contrast(runs: Sequence[str], file: Path, per_token: bool, json: bool) -> None:
    from structattn.tasks.translation.contrastive import (
        contrastive_negative_log_likelihoods,
        contrastive_scores,
        read_contrasts,
        write_contrastive,
    )
    from structattn.text.reading import Notices

    contrasts = read_contrasts(file, Notices())

    def score(run: "TrainedRun") -> "ContrastiveScores":
        nats = contrastive_negative_log_likelihoods(run, contrasts, per_token=per_token)
        scores = contrastive_scores(contrasts, nats, per_token=per_token)
        write_contrastive(run, file, scores)
        return scores

    _score_runs(runs, score, _print_contrasts, json)


def _print_contrasts(results: "Sequence[tuple[Path, ContrastiveScores]]") -> None:
    """Print one row for each type of error, one column for each run."""
    from structattn.report.page import with_interval

    unit = "token" if results[0][1].per_token else "sentence"
    caption = f"accuracy in percent with 95 % interval; log-probabilities per {unit}"
    table = numbers_table(["type"], ["pairs", *(folder.name for folder, _ in results)], caption)
    for kind, first in results[0][1].types.items():
        accuracies = [scores.types[kind] for _, scores in results]
        table.add_row(literal(kind), str(first.trials), *(with_interval(asdict(each)) for each in accuracies))
    print_table(table)


def _chunking(runs: Sequence[str], folder: Path, json: bool) -> None:
    from structattn.tasks.chunking.evaluate import majority_scores, probe_chunking, read_chunked_corpus, write_chunking
    from structattn.text.reading import Notices

    corpus = read_chunked_corpus(folder, Notices())
    results = []
    for run in open_runs(runs):
        streams = probe_chunking(run, corpus)
        write_chunking(run, corpus, streams)
        results.append((run.run_dir, streams))
    if json:
        of_runs = [{"run": folder, "streams": streams} for folder, streams in results]
        print_json({"most_frequent_tag": majority_scores(corpus), "runs": of_runs})
    else:
        _print_chunks(majority_scores(corpus), results)


def _print_chunks(baseline: "TaggingScores", results: "Sequence[tuple[Path, Sequence[StreamScores]]]") -> None:
    """Print one row for each stream of each run."""
    from structattn.tasks.chunking.report import HEADINGS, MAJORITY, values_of

    table = numbers_table(["run", "stream"], HEADINGS, "chunks of the test sentences, in percent")
    rows = [(MAJORITY, "", baseline)]
    rows += [(folder.name, each.stream or "", each.scores) for folder, streams in results for each in streams]
    for name, stream, scores in rows:
        table.add_row(literal(name), stream, *(f"{100 * each:.2f}" for each in values_of(asdict(scores))))
    print_table(table)


def _trees(runs: Sequence[str], file: Path, json: bool) -> None:
    from structattn.tasks.parsing.evaluate import parsing_scores, write_parsing
    from structattn.tasks.parsing.predict import make_parser

    def score(run: "TrainedRun") -> "ParsingScores":
        scores = parsing_scores(make_parser(run), file)
        write_parsing(run, file, scores)
        return scores

    _score_runs(runs, score, _print_trees, json)


def _print_trees(results: "Sequence[tuple[Path, ParsingScores]]") -> None:
    from structattn.tasks.parsing.report import HEADINGS, values_of

    caption = "brackets in percent; malformed: share of the outputs that were repaired, 0 with constrained parsing"
    table = numbers_table(["trees"], [*HEADINGS, "malformed"], caption)
    baselines = results[0][1]  # the same for all runs
    rows = [(folder.name, scores.scores, f"{scores.malformed:.1%}") for folder, scores in results]
    rows += [("right-branching", baselines.right_branching, ""), ("left-branching", baselines.left_branching, "")]
    for name, scores, malformed in rows:
        table.add_row(literal(name), *(f"{100 * each:.2f}" for each in values_of(asdict(scores))), malformed)
    print_table(table)


def _blimp(runs: Sequence[str], file: Path, marks: Marks, json: bool) -> None:
    """Score minimal pairs."""
    from structattn.tasks.minimal_pairs.data import read_minimal_pairs, suite_name
    from structattn.tasks.minimal_pairs.evaluate import blimp_scores, write_blimp
    from structattn.text.reading import Notices

    pairs = read_minimal_pairs(file, Notices())
    name = suite_name(file, pairs)

    def score(run: "TrainedRun") -> Mapping[str, Any]:
        scorer = _sentence_scorer(run, marks)
        scores = blimp_scores(scorer, pairs, name)
        write_blimp(scorer, pairs, scores)
        return asdict(scores)

    _score_runs(runs, score, _print_pairs, json)


def _sentence_scorer(run: "TrainedRun", marks: Marks) -> "SentenceScorer":
    """Return a scorer of sentences as the run's data write them, in lower case if its vocabulary has no upper case."""
    from structattn.tasks.language_modeling.sentences import SentenceScorer, WrittenForm

    separate = None if marks == "auto" else marks == "separate"
    form = WrittenForm.of_corpus(run.prepared.beginning(), run.prepared.vocabulary.symbols, separate)
    return SentenceScorer(run, form)


def _syntaxgym(runs: Sequence[str], file: Path, marks: Marks, json: bool) -> None:
    """Score suites of predictions about surprisals."""
    from structattn.tasks.syntaxgym.data import read_suites
    from structattn.tasks.syntaxgym.evaluate import model_scores, suite_scores, write_model, write_suite
    from structattn.text.reading import Notices

    suites = read_suites(file, Notices())

    def score(run: "TrainedRun") -> "list[SuiteScores]":
        scorer, results = _sentence_scorer(run, marks), []
        for suite in suites:
            results.append(suite_scores(scorer, suite))
            write_suite(scorer, suite, results[-1])
        if len(suites) > 1:
            write_model(scorer, suites, model_scores(results))
        return results

    _score_runs(runs, score, _print_suites, json)


def _print_suites(results: "Sequence[tuple[Path, Sequence[SuiteScores]]]") -> None:
    """Print one row for each prediction of each suite, then the scores of several; one column for each run."""
    from structattn.tasks.syntaxgym.evaluate import model_scores
    from structattn.tasks.syntaxgym.report import MODEL_CAPTION, model_rows, written

    caption = (
        "Percent of the items of which a prediction holds, with 95 % interval; all: all predictions. In brackets: "
        "share of the items without <unk>, and percent of those, where some have <unk>."
    )
    table = numbers_table(["prediction"], ["items", *(folder.name for folder, _ in results)], caption)
    for of_runs in zip(*(suites for _, suites in results), strict=True):
        table.add_row(literal(of_runs[0].name), style="bold")
        for rows in zip(*((each.overall, *each.predictions) for each in of_runs), strict=True):
            accuracies = [written(asdict(each)) for each in rows]
            table.add_row(literal(f"  {rows[0].formula}"), str(rows[0].items.trials), *accuracies)
    print_table(table)
    if len(results[0][1]) > 1:
        of_model = numbers_table(["score"], [folder.name for folder, _ in results], MODEL_CAPTION)
        for name, numbers in model_rows([model_scores(suites) for _, suites in results]):
            of_model.add_row(literal(name), *numbers)
        print_table(of_model)


def _print_pairs(results: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """Print the groups of paradigms beside published accuracies, then the paradigms."""
    from structattn.tasks.minimal_pairs.report import METHODS, paradigm_rows, summary_rows, systems_of

    names, of_runs = [folder.name for folder, _ in results], [scores for _, scores in results]
    systems = systems_of(of_runs[0]["name"])
    published = "Published: Warstadt et al. (2020), table 3, corrected." if systems else None
    groups = numbers_table(["group"], [*names, *systems], published, padding=0)
    for row in summary_rows(of_runs):
        others = [f"{row.published[system]:.1f}" if system in row.published else "" for system in systems]
        groups.add_row(literal(row.name), *(_written(each, {}) for each in row.runs), *others)
    paradigms = numbers_table(["paradigm"], names, _PAIRS_CAPTION, padding=0)
    for phenomenon, rows in paradigm_rows(of_runs).items():
        paradigms.add_row(literal(phenomenon), style="bold")
        for row in rows:
            paradigms.add_row(literal(f"  {row.name}"), *(_written(each, METHODS) for each in row.runs))
    print_table(groups)
    print_table(paradigms)


_PAIRS_CAPTION = (
    "Accuracy in percent with 95 % interval: the acceptable sentence is strictly more likely. In brackets: share of "
    "the pairs without <unk>, and accuracy on them, where some have <unk>. One prefix, two prefixes: accuracy of words "
    "given prefixes."
)


def _written(accuracy: Mapping[str, Any] | None, methods: Mapping[str, str]) -> str:
    """Return the accuracy on whole sentences, that on pairs without unknown words if it differs, and by methods."""
    from structattn.report.page import on_known, with_interval

    if accuracy is None:
        return ""
    sentence = accuracy["sentence"]
    parts = [with_interval(sentence), on_known(accuracy["known"], sentence)]
    parts += [f"{name}: {100 * accuracy[key]['value']:.1f}" for key, name in methods.items() if accuracy[key]]
    return "\n".join(filter(None, parts))
