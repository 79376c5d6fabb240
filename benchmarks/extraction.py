"""How many of twenty trained stacks extraction reads right; and of two of inherently nondeterministic languages.

    OMP_NUM_THREADS=1 python benchmarks/extraction.py FOLDER --output benchmarks/results/extraction.json

Trains the runs that FOLDER lacks, reads those whose result it lacks, and judges each verdict by other strings than
those it is made of: all strings up to a length, and strings of the trained lengths that are drawn from either grammar.
A run has learned if its cross-entropy is within 0.02 nats of the lower bound.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from extraction_runs import CASES, NONDETERMINISTIC, Case, trained
from result_file import heading, write_results

from structattn.extraction.agreement import Modelled, agreement_on_strings, fitted_threshold
from structattn.extraction.comparison import Comparison
from structattn.extraction.configurations import Simulator
from structattn.extraction.files import write_extraction
from structattn.extraction.observations import observe
from structattn.extraction.pipeline import Extraction, ExtractionSettings, extract, true_grammar
from structattn.extraction.reading import validation_strings
from structattn.extraction.stacks import stack_reader
from structattn.extraction.verdict import described
from structattn.loading.evaluate import evaluate_run
from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.metrics.statistics import wilson_interval
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.next_symbols import Reader, Recognizer, contains

LEARNED = 0.02
STRINGS = {"demo": 60, "published": 60, "restart": 60}  # of 80 symbols
PER_LENGTH = 10
MIN_AGREEMENT = 0.98


def read(case: Case, folder: Path) -> dict[str, Any]:
    """Train, extract and judge one run."""
    run = open_run(trained(case, folder))
    start = time.process_time()
    extraction = extract(run, ExtractionSettings(strings=STRINGS.get(case.stack)))
    seconds = time.process_time() - start
    write_extraction(run, extraction, folder / "extracted" / case.name)
    trained_ones, comparison = extraction.trained, extraction.comparison
    return {
        "run": case.name,
        "difference": evaluate_run(run, "valid").cross_entropy_difference,
        "verdict": extraction.verdict.kind,
        "reasons": list(extraction.verdict.reasons),
        "algorithm": extraction.algorithm,
        "agreement": None if trained_ones is None else trained_ones.extracted_model.value,
        "causal_difference": extraction.causal.difference,
        "max_length": None if comparison is None else comparison.max_length,
        "counterexample": _counterexample(comparison),
        "seconds": round(seconds),
        **judged(run, extraction),
    }


def _counterexample(comparison: Comparison | None) -> str | None:
    return None if comparison is None or comparison.is_equal else described(comparison)


def judged(run: TrainedRun, extraction: Extraction) -> dict[str, Any]:
    """Say whether a verdict is right.

    ``same_language``: whether automaton and language have the same strings at trained lengths, as far as strings drawn
    from the grammar of either tell. ``agreement_on_test``: the share of prefixes of test strings of these lengths after
    which model and automaton allow the same symbols. ``language_agreement``: the same share of model and language, at
    the threshold that fits best: no automaton can agree if it does not.
    """
    truth = true_grammar(run)
    assert truth is not None
    low, high = run.prepared.header.extra["train_lengths"]
    lengths = range(low, high + 1)
    same, on_test, minimal = False, 0.0, extraction.minimal
    if minimal is not None:
        extracted, true = Simulator(minimal.automaton), Recognizer(truth)
        # of a grammar that no file can hold no strings are drawn; it counts as another one
        same = minimal.text is not None and _has_all(true, minimal.grammar, lengths)
        same = same and _has_all(extracted, truth, lengths)
        on_test = _on_test(run, extraction, extracted, lengths)
    language_agreement = agreement_with_language(run, truth)
    agrees = on_test >= MIN_AGREEMENT
    exact = same and (extraction.comparison is None or extraction.comparison.is_equal)
    right = {
        "exact": agrees and exact,
        "other language": agrees and not exact,
        "no automaton agrees": language_agreement < MIN_AGREEMENT and not (agrees and exact),
    }
    return {
        "same_language": same,
        "agreement_on_test": on_test,
        "language_agreement": language_agreement,
        "right": right[extraction.verdict.kind],
    }


def agreement_with_language(run: TrainedRun, truth: Grammar) -> float:
    """Return the share of validation prefixes after which a model allows what the language does."""
    observed = observe(run, stack_reader(run), validation_strings(run))
    modelled, language = Modelled(run.prepared.vocabulary.symbols, 0.0), Recognizer(truth)
    modelled = Modelled(modelled.symbols, math.log(fitted_threshold(observed, modelled, language)))
    return agreement_on_strings(observed, modelled, language, None).extracted_model.value


def _has_all(reader: Reader, grammar: Grammar, lengths: range) -> bool:
    """Return whether a language has the strings drawn from a grammar, of each length at which that has some."""
    language = ContextFreeLanguage("drawn", "faithful", grammar)
    generator = np.random.default_rng(0)
    drawn = (
        string
        for length in language.valid_lengths(lengths[0], lengths[-1])
        for string in language.sample(length, PER_LENGTH, generator)
    )
    return all(contains(reader, [grammar.alphabet[index] for index in string]) for string in drawn)


def _on_test(run: TrainedRun, extraction: Extraction, extracted: Reader, lengths: range) -> float:
    split = run.prepared.split("test")
    strings = [np.asarray(each) for each in (split[index] for index in range(len(split))) if len(each) in lengths]
    observed = observe(run, stack_reader(run), strings[:: max(1, len(strings) // 150)], what="test strings")
    modelled = Modelled(run.prepared.vocabulary.symbols, math.log(extraction.threshold.value))
    return agreement_on_strings(observed, modelled, extracted, None).extracted_model.value


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the guide."""
    lines = [
        "| run | bound | verdict | algorithm | agrees | causal check | counterexample |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = f"exact, to length {row['max_length']}" if row["verdict"] == "exact" else row["verdict"]
        cells = [row["run"], f"{row['difference']:.4f}", verdict, row["algorithm"], f"{row['agreement'] or 0:.4f}"]
        cells += [f"{row['causal_difference']:+.4f}", row["counterexample"] or ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train and read all runs, and print and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", help="names of runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in (*CASES, *NONDETERMINISTIC):
        if arguments.only and case.name not in arguments.only:
            continue
        stored = arguments.folder / "results" / f"{case.name}.json"
        if not stored.exists():
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_text(json.dumps(read(case, arguments.folder)), encoding="utf-8")
        rows.append(json.loads(stored.read_text(encoding="utf-8")))
        print(json.dumps(rows[-1]), flush=True)
    names = {case.name for case in CASES}
    twenty = [row for row in rows if row["run"] in names]
    learned = [row["verdict"] == "exact" for row in twenty if row["difference"] <= LEARNED]
    print(table(rows))
    if learned:
        share = wilson_interval(learned)
        print(f"exact: {sum(learned)} of {len(learned)} that learned ({share.lower:.0%} to {share.upper:.0%})")
    print(f"right: {sum(row['right'] for row in twenty)} of {len(twenty)}")
    content = heading("OMP_NUM_THREADS=1 python benchmarks/extraction.py FOLDER") | {"rows": rows}
    write_results(content, arguments.output)


if __name__ == "__main__":
    main()
