"""Suites of ``structattn evaluate --suite``: score runs, store the scores, and print them as a table or as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from structattn.cli.options import open_runs
from structattn.cli.output import literal, numbers_table, print_json, print_table
from structattn.loading.trained_run import TrainedRun
from structattn.report.page import on_known, with_interval
from structattn.report.runs import shortest_names
from structattn.tasks.chunking import report as chunking_report
from structattn.tasks.chunking.evaluate import (
    StreamScores,
    majority_scores,
    probe_chunking,
    read_chunked_corpus,
    write_chunking,
)
from structattn.tasks.chunking.metrics import TaggingScores
from structattn.tasks.language_modeling.sentences import SentenceScorer, WrittenForm
from structattn.tasks.minimal_pairs.data import read_minimal_pairs, suite_name
from structattn.tasks.minimal_pairs.evaluate import blimp_scores, write_blimp
from structattn.tasks.minimal_pairs.report import METHODS, paradigm_rows, summary_rows, systems_of
from structattn.tasks.parsing import report as parsing_report
from structattn.tasks.parsing.evaluate import ParsingScores, parsing_scores, write_parsing
from structattn.tasks.parsing.predict import make_parser
from structattn.tasks.syntaxgym.data import read_suites
from structattn.tasks.syntaxgym.evaluate import SuiteScores, model_scores, suite_scores, write_model, write_suite
from structattn.tasks.syntaxgym.report import MODEL_CAPTION, model_rows, written
from structattn.tasks.translation.contrastive import (
    ContrastiveScores,
    contrastive_negative_log_likelihoods,
    contrastive_scores,
    read_contrasts,
    write_contrastive,
)
from structattn.text.reading import Notices

Scores = TypeVar("Scores")


def _score_runs(
    runs: Sequence[str],
    score: Callable[[TrainedRun], Scores],
    show: Callable[[Sequence[tuple[str, Scores]]], None],
    json: bool,
    rest: Callable[[Scores], Mapping[str, object]] = lambda scores: {},
    decodes: bool = False,
) -> None:
    """Score runs, and print a table, or JSON with the rest of the scores of each run beside them."""
    results = [(run.run_dir, score(run)) for run in open_runs(runs, writes="analyses", decodes=decodes)]
    if json:
        print_json([{"run": folder, "scores": scores, **rest(scores)} for folder, scores in results])
    else:
        show(_named(results))


def _named(results: Sequence[tuple[Path, Scores]]) -> list[tuple[str, Scores]]:
    return list(zip(shortest_names([folder for folder, _ in results]), [scores for _, scores in results], strict=True))


def contrast(runs: Sequence[str], file: Path, per_token: bool, json: bool) -> None:
    """Score contrastive pairs of translations."""
    contrasts = read_contrasts(file, Notices())

    def score(run: TrainedRun) -> ContrastiveScores:
        nats = contrastive_negative_log_likelihoods(run, contrasts, per_token=per_token)
        scores = contrastive_scores(contrasts, nats, per_token=per_token)
        write_contrastive(run, file, scores)
        return scores

    _score_runs(runs, score, _print_contrasts, json)


def _print_contrasts(results: Sequence[tuple[str, ContrastiveScores]]) -> None:
    """Print one row for each type of error, one column for each run."""
    unit = "token" if results[0][1].per_token else "sentence"
    caption = f"accuracy in percent with 95 % interval; log-probabilities per {unit}"
    table = numbers_table(["type"], ["pairs", *(name for name, _ in results)], caption)
    for kind, first in results[0][1].types.items():
        accuracies = [scores.types[kind] for _, scores in results]
        table.add_row(literal(kind), str(first.trials), *(with_interval(asdict(each)) for each in accuracies))
    print_table(table)


def chunking(runs: Sequence[str], folder: Path, json: bool) -> None:
    """Probe the hidden states of each stream for chunks."""
    corpus = read_chunked_corpus(folder, Notices())
    results = []
    for run in open_runs(runs, writes="analyses"):
        streams = probe_chunking(run, corpus)
        write_chunking(run, corpus, streams)
        results.append((run.run_dir, streams))
    if json:
        of_runs = [{"run": folder, "streams": streams} for folder, streams in results]
        print_json({"most_frequent_tag": majority_scores(corpus), "runs": of_runs})
    else:
        _print_chunks(majority_scores(corpus), _named(results))


def _print_chunks(baseline: TaggingScores, results: Sequence[tuple[str, Sequence[StreamScores]]]) -> None:
    """Print one row for each stream of each run."""
    table = numbers_table(["run", "stream"], chunking_report.HEADINGS, "chunks of the test sentences, in percent")
    rows = [(chunking_report.MAJORITY, "", baseline)]
    rows += [(name, each.stream or "", each.scores) for name, streams in results for each in streams]
    for name, stream, scores in rows:
        values = chunking_report.values_of(asdict(scores))
        table.add_row(literal(name), stream, *(f"{100 * each:.2f}" for each in values))
    print_table(table)


def trees(runs: Sequence[str], file: Path, json: bool) -> None:
    """Score parsers on a file of trees."""

    def score(run: TrainedRun) -> ParsingScores:
        scores = parsing_scores(make_parser(run), file)
        write_parsing(run, file, scores)
        return scores

    _score_runs(runs, score, _print_trees, json, decodes=True)


def _print_trees(results: Sequence[tuple[str, ParsingScores]]) -> None:
    caption = "brackets in percent; malformed: share of the outputs that were repaired, 0 with constrained parsing"
    table = numbers_table(["trees"], [*parsing_report.HEADINGS, "malformed"], caption)
    baselines = results[0][1]  # the same for all runs
    rows = [(name, scores.scores, f"{scores.malformed:.1%}") for name, scores in results]
    rows += [("right-branching", baselines.right_branching, ""), ("left-branching", baselines.left_branching, "")]
    for name, scores, malformed in rows:
        values = parsing_report.values_of(asdict(scores))
        table.add_row(literal(name), *(f"{100 * each:.2f}" for each in values), malformed)
    print_table(table)


def blimp(runs: Sequence[str], file: Path, marks: str, json: bool) -> None:
    """Score minimal pairs."""
    pairs = read_minimal_pairs(file, Notices())
    name = suite_name(file, pairs)

    def score(run: TrainedRun) -> Mapping[str, Any]:
        scorer = _sentence_scorer(run, marks)
        scores = blimp_scores(scorer, pairs, name)
        write_blimp(scorer, pairs, scores)
        return asdict(scores)

    _score_runs(runs, score, _print_pairs, json)


def _sentence_scorer(run: TrainedRun, marks: str) -> SentenceScorer:
    """Return a scorer of sentences as the run's data write them, in lower case if its vocabulary has no upper case."""
    scorer = SentenceScorer(run, WrittenForm())  # which refuses other runs before their data are read
    separate = None if marks == "auto" else marks == "separate"
    text, tokenizer = run.prepared.beginning(), run.prepared.tokenizer
    form = WrittenForm.of_corpus(text, set(text) if tokenizer.reads_bytes else tokenizer.vocabulary.symbols, separate)
    return replace(scorer, form=form)


def syntaxgym(runs: Sequence[str], file: Path, marks: str, json: bool) -> None:
    """Score suites of predictions about surprisals."""
    suites = read_suites(file, Notices())

    def score(run: TrainedRun) -> list[SuiteScores]:
        scorer, results = _sentence_scorer(run, marks), []
        for suite in suites:
            results.append(suite_scores(scorer, suite))
            write_suite(scorer, suite, results[-1])
        if len(suites) > 1:
            write_model(scorer, suites, model_scores(results))
        return results

    def of_model(scores: Sequence[SuiteScores]) -> Mapping[str, object]:
        return {"model_scores": model_scores(scores)} if len(scores) > 1 else {}

    _score_runs(runs, score, _print_suites, json, of_model)


def _print_suites(results: Sequence[tuple[str, Sequence[SuiteScores]]]) -> None:
    """Print one row for each prediction of each suite, then the scores of several; one column for each run."""
    caption = (
        "Percent of the items of which a prediction holds, with 95 % interval; all: all predictions. In brackets: "
        "share of the items without <unk>, and percent of those, where some have <unk>."
    )
    table = numbers_table(["prediction"], ["items", *(name for name, _ in results)], caption)
    for of_runs in zip(*(suites for _, suites in results), strict=True):
        table.add_row(literal(of_runs[0].name), style="bold")
        for rows in zip(*((each.overall, *each.predictions) for each in of_runs), strict=True):
            accuracies = [written(asdict(each)) for each in rows]
            table.add_row(literal(f"  {rows[0].formula}"), str(rows[0].items.trials), *accuracies)
    print_table(table)
    if len(results[0][1]) > 1:
        of_model = numbers_table(["score"], [name for name, _ in results], MODEL_CAPTION)
        for name, numbers in model_rows([model_scores(suites) for _, suites in results]):
            of_model.add_row(literal(name), *numbers)
        print_table(of_model)


def _print_pairs(results: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Print the groups of paradigms beside published accuracies, then the paradigms."""
    names, of_runs = [name for name, _ in results], [scores for _, scores in results]
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
    if accuracy is None:
        return ""
    sentence = accuracy["sentence"]
    parts = [with_interval(sentence), on_known(accuracy["known"], sentence)]
    parts += [f"{name}: {100 * accuracy[key]['value']:.1f}" for key, name in methods.items() if accuracy[key]]
    return "\n".join(filter(None, parts))
