"""The files of an extraction: JSON, a grammar, a drawing and a page."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote

from structattn.extraction.agreement import Agreement
from structattn.extraction.automaton import PushdownAutomaton
from structattn.extraction.comparison import Comparison
from structattn.extraction.drawing import automaton_svg, item_name
from structattn.extraction.page import extraction_page
from structattn.extraction.pipeline import Extraction
from structattn.loading.trained_run import TrainedRun
from structattn.runs.store import write_analysis
from structattn.settings.published import EXTRACTION
from structattn.support.files import (
    check_writable_folder,
    create_folder,
    remove_file_unflushed,
    require_own_folder,
    write_atomically,
)
from structattn.support.json_files import read_json, write_json

KIND = EXTRACTION
"""Of the analysis in the run folder, which is also its name."""
_NAMES = ("automaton.json", "grammar.cfg", "automaton.svg", "extract.html")


def require_folder(folder: Path) -> None:
    """Check that an extraction can be written to a folder: that it replaces nothing but an earlier extraction.

    Raises:
        StructattnError: it is no folder, or has files but none of an extraction.
        OSError: it cannot be created, or no file in it.
    """
    if (folder / _NAMES[0]).exists():
        read_json(folder / _NAMES[0], KIND)
    else:
        require_own_folder(folder, (), _NAMES, "a new folder, or that of an earlier extraction")
    check_writable_folder(folder)


def write_extraction(run: TrainedRun, extraction: Extraction, folder: str | PathLike[str]) -> list[Path]:
    """Write ``automaton.json``, ``grammar.cfg``, ``automaton.svg``, and last ``extract.html`` to a folder; return them.

    ``analyses/extraction.json`` of the run folder gets the scores, for sweeps. Grammar and drawing are written where
    there is an automaton, and a grammar that fits into a file; those of an earlier extraction are removed.

    Raises:
        StructattnError: the folder has other files of these names.
    """
    folder = Path(folder)
    require_folder(folder)
    create_folder(folder)
    paths = {name: folder / name for name in _NAMES}
    content = extraction_to_json(run, extraction)
    write_json(paths["automaton.json"], KIND, content)
    minimal = extraction.minimal
    texts = {
        "grammar.cfg": None if minimal is None else minimal.text,
        "automaton.svg": None if minimal is None else automaton_svg(minimal.automaton),
    }
    for name, text in texts.items():
        if text is None:
            remove_file_unflushed(paths.pop(name))
        else:
            write_atomically(paths[name], text)
    write_atomically(paths["extract.html"], extraction_page(run, extraction))
    page = quote(os.fsencode(os.path.relpath(paths["extract.html"], run.run_dir)))  # which may not be UTF-8
    analysis = {"update": run.update, "page": page, "scores": scores_of(extraction), **content}
    write_analysis(run.run_dir, EXTRACTION, KIND, analysis)
    return list(paths.values())


def scores_of(extraction: Extraction) -> dict[str, float]:
    """Return what sweeps average: 1 for an exact automaton, else 0, and the agreements."""
    kind = extraction.verdict.kind
    scores = {
        "exact": float(kind == "exact"),
        "automaton": float(kind != "no automaton agrees"),
        "causal_difference": extraction.causal.difference,
    }
    if extraction.trained is not None:
        scores["extracted_model"] = extraction.trained.extracted_model.value
    return scores


def extraction_to_json(run: TrainedRun, extraction: Extraction) -> dict[str, Any]:
    """Return the extraction as JSON."""
    minimal, threshold = extraction.minimal, extraction.threshold
    return {
        "verdict": extraction.verdict.kind,
        "algorithm": extraction.algorithm,
        "reasons": list(extraction.verdict.reasons),
        "threshold": {**asdict(threshold), "separates": threshold.separates},
        "letters": {
            run.prepared.vocabulary.symbols[symbol]: list(letters)
            for symbol, letters in extraction.letters.of_symbol.items()
        },
        "vector_classes": list(extraction.letters.vectors),
        "ambiguous_letters": extraction.ambiguous,
        "strings": dict(zip(("sampled", "short"), extraction.num_strings, strict=True)),
        "causal_check": {
            **asdict(extraction.causal),
            "difference": extraction.causal.difference,
            "disabled_difference": extraction.causal.disabled_difference,
        },
        "observed_automaton": automaton_to_json(extraction.automaton),
        "automaton": None if minimal is None else automaton_to_json(minimal.automaton),
        "merged_up_to_length": None if minimal is None else minimal.max_length,
        "grammar": None if minimal is None else minimal.text,
        "agreement": {
            "trained_lengths": _agreement(extraction.trained),
            "short_prefixes": _agreement(extraction.short),
            "forbidden_mass": extraction.forbidden_mass,
        },
        "comparison": None if extraction.comparison is None else _comparison(extraction.comparison),
    }


def automaton_to_json(automaton: PushdownAutomaton) -> dict[str, Any]:
    """Return an automaton as JSON: its transitions, each with the number of strings that showed it."""
    return {
        "alphabet": list(automaton.alphabet),
        "deterministic": automaton.is_deterministic,
        "choices": automaton.num_choices,
        "starts": [
            {"control": each.control, "stack": list(map(item_name, each.stack))} for each in sorted(automaton.starts)
        ],
        "finals": [{"control": each.control, "top": item_name(each.top)} for each in sorted(automaton.finals)],
        "transitions": [
            {
                "source": each.source,
                "symbol": each.symbol,
                "top": item_name(each.top),
                "action": each.action,
                "item": None if each.item is None else item_name(each.item),
                "target": each.target,
                "strings": count,
            }
            for each, count in automaton.transitions.items()
        ],
    }


def _agreement(agreement: Agreement | None) -> Mapping[str, Any] | None:
    return None if agreement is None else asdict(agreement)


def _comparison(comparison: Comparison) -> dict[str, Any]:
    difference = comparison.difference
    string = comparison.counterexample
    return {
        "max_length": comparison.max_length,
        "prefixes": comparison.num_prefixes,
        "equal": comparison.num_equal,
        "different_prefix": None if difference is None else list(difference.prefix),
        "counterexample": None if string is None else list(string),
        "counterexample_in": None if string is None else "automaton" if comparison.in_first else "language",
    }
