"""``structattn demo``: train, evaluate and report a transformer with and without a stack, in minutes on a CPU."""

from pathlib import Path
from typing import Annotated, Any

import typer

from structattn.cli.output import print_line
from structattn.support.errors import UsageError
from structattn.support.files import check_writable_folder
from structattn.support.imports import require_modules
from structattn.support.reading import MAX_INTEGER

LANGUAGE = "marked-reversal"
_SOFTMAX = [{"attention": "softmax"}] * 2
_STACK = {
    "attention": "nondeterministic",
    "num_states": 2,
    "stack_alphabet_size": 3,
    "stack_embedding_size": 5,
    "pop_offset": 2.0,
}
# The two transformers of DuSell & Chiang (2024, section 6); the one with the stack has fewer parameters.
MODELS: dict[str, dict[str, Any]] = {
    "transformer": {"d_model": 32, "d_ff": 64, "layers": "5"},
    "stack-transformer": {"d_model": 28, "d_ff": 56, "layers": [*_SOFTMAX, _STACK, *_SOFTMAX]},
}
# The paper draws embeddings from U(-0.1, 0.1), has batches of 10, no offset of pops and no curriculum, and trains for
# up to 200 epochs, ten times. With these settings one epoch is enough for each of the seeds 1 to 10
# (docs/finding_the_stack.md).
SHORT_EPOCHS = 5
EXTRACTION_STRINGS = 60  # of up to 80 symbols, whose prefixes take most of the time
TRAINING = {
    "batches": {"kind": "sequences", "batch_size": 4},
    "optimizer": {"learning_rate": 0.003},
    "curriculum": [{"max_length": 11, "epochs": SHORT_EPOCHS}],
}


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for data, runs and report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=MAX_INTEGER, help="Random seed of the strings and models.")] = 1,
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs, after five on short strings.")] = 1,
    strings: Annotated[
        int, typer.Option(min=10, help="Number of training strings; a fifth as many short ones are added.")
    ] = 10_000,
) -> None:
    """Train a transformer with and without a stack on marked palindromes, and compare both with the exact lower bound.

    Strings longer than those of training are scored apart, against the bound given their length: there the one without
    stays behind, even after training that closes the gap at the lengths of training.

    After an interruption, run the same command again to resume.

    Examples:
        structattn demo
        structattn demo -o demo-2 --seed 2
    """
    check_writable_folder(output)
    require_modules("plot", "matplotlib")
    from structattn.cli.report_page import write_report
    from structattn.cli.scores_table import print_scores
    from structattn.explorer.run_analysis import analyze_run
    from structattn.extraction.files import require_folder, write_extraction
    from structattn.extraction.pipeline import ExtractionSettings, extract
    from structattn.loading.evaluate import evaluate_run
    from structattn.loading.runs import open_run
    from structattn.report.page import require_report_folder
    from structattn.tasks.language_modeling.evaluate import longer_than
    from structattn.training.run_training import train

    report, automaton = output / "report", output / "automaton"
    require_report_folder(report)
    require_folder(automaton)
    data = prepared_data(output / LANGUAGE, seed, strings)
    results = []
    for name, model in MODELS.items():
        folder = output / name
        print_line(f"{name}: training, at first on short strings; those of validation are longer", error=True)
        train(demo_settings(data, model, seed, epochs, strings), folder, resume="auto")
        run = open_run(folder)
        longest = run.prepared.header.extra["train_lengths"][1]
        results.append((folder, evaluate_run(run, "valid")))
        results.append((folder, longer_than(evaluate_run(run, "test"), longest)))
        analyze_run(run, "test", [0])
        if name == "stack-transformer":
            print_line(f"{name}: reading its stack out as an automaton", error=True)
            write_extraction(run, extract(run, ExtractionSettings(strings=EXTRACTION_STRINGS)), automaton)
    page = write_report([output / name for name in MODELS], report)
    print_scores(results)
    print_line(f"Report: {page}")


def prepared_data(folder: Path, seed: int, strings: int) -> Path:
    """Return the folder of the demo's strings, prepared if missing: one validation string per ten training strings.

    Raises:
        UsageError: the existing strings were sampled with other options.
    """
    from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
    from structattn.text.folders.prepared import open_prepared

    if not (folder / "header.json").exists():
        print_line(f"{folder}: sampling strings with their exact probabilities", error=True)
        sizes = FormalLanguageSizes(strings, strings // 10, test_per_length=-(-strings // 100), short=strings // 5)
        prepare_formal_language(folder, LANGUAGE, seed=seed, sizes=sizes)
    header = open_prepared(folder).header
    prepared_with = {
        "--seed": header.extra.get("seed"),
        "--strings": header.splits["train"].sequences - int(header.extra.get("short", 0)),
    }
    for option, wanted in (("--seed", seed), ("--strings", strings)):
        if prepared_with[option] != wanted:
            raise UsageError(
                f"{folder} was prepared with {option} {prepared_with[option]}, not {wanted}; choose another --output"
            )
    return folder


def demo_settings(data: Path, model: dict[str, Any], seed: int, epochs: int, strings: int) -> Any:
    """Return the settings of one of the two runs, with a validation after every quarter of the long strings."""
    from structattn.settings.run import resolve_settings

    tree = {
        "task": "formal_language",
        "data": str(data),
        "model": {"num_heads": 4, "embedding_init": "normal", **model},
        "training": {**TRAINING, "max_epochs": SHORT_EPOCHS + epochs, "validate_every": max(1, strings // 16)},
        "seed": seed,
    }
    return resolve_settings(tree, source="demo")
