"""Reports of suites: what was scored on different data is never in one table row, or beside one baseline."""

from pathlib import Path

import pytest

from structattn.report.runs import Run
from structattn.report.style import line_style
from structattn.tasks.chunking.report import chunking_sections
from structattn.tasks.minimal_pairs.report import blimp_section
from structattn.tasks.parsing.report import parsing_sections
from structattn.tasks.syntaxgym.report import syntaxgym_section


def runs_with(*analyses):
    runs = [Run(f"run{i}", Path("x"), {}, "", {}, (), {}, each, None) for i, each in enumerate(analyses, start=1)]
    return [(run, line_style(index)) for index, run in enumerate(runs)]


def chunking(corpus, baseline):
    def scores(value):
        return {"accuracy": value, "overall": dict.fromkeys(("precision", "recall", "f1"), value)}

    streams = [{"stream": None, "scores": scores(0.9)}]
    return {"chunking": {"kind": "chunking", "corpus": corpus, "baseline": scores(baseline), "streams": streams}}


def parsing(name, baseline):
    def scores(value):
        brackets = dict.fromkeys(("precision", "recall", "f1", "exact"), value)
        return {"labelled": brackets, "unlabelled": brackets}

    content = {"kind": "parsing", "name": name, "malformed": 0.0, "scores": scores(0.9)}
    return {"parsing-x": {**content, "right_branching": scores(baseline), "left_branching": scores(0.1)}}


@pytest.mark.parametrize(
    ("sections", "analysis", "title"),
    [(chunking_sections, chunking, "Chunking probe"), (parsing_sections, parsing, "Parsing")],
)
def test_corpora_have_tables_and_baselines_of_their_own(sections, analysis, title):
    runs = runs_with(analysis("a", 0.1234), analysis("b", 0.2345), analysis("a", 0.3456), analysis("a", 0.1234))
    _, first, second, third = sections(runs).split(f"<h3>{title}: ")
    assert [each.partition("</h3>")[0] for each in (first, second, third)] == ["a", "b", "a (2)"]
    for part, names, baseline in ((first, "14", "12.34"), (second, "2", "23.45"), (third, "3", "34.56")):
        assert [name for name in "1234" if f"run{name}" in part] == [*names]
        assert [each for each in ("12.34", "23.45", "34.56") if each in part] == [baseline]
    assert sections(runs_with({})) == ""


def suite(successes):
    proportion = {"value": successes / 10, "trials": 10, "successes": successes, "lower": 0.0, "upper": 1.0}
    accuracies = [{"formula": name, "items": proportion, "known": proportion} for name in ("all", "1 < 2")]
    return {"kind": "syntaxgym", "name": "number", "overall": accuracies[0], "predictions": accuracies[1:]}


def test_suites_of_one_name_have_rows_of_their_own():
    section = syntaxgym_section(
        runs_with({"syntaxgym-a": suite(2), "syntaxgym-b": suite(7)}, {"syntaxgym-a": suite(4)})
    )
    for text in ("number: 1 &lt; 2", "number (2): 1 &lt; 2", "20.0", "70.0", "40.0"):
        assert text in section


def test_suites_are_told_apart_by_their_files():
    """The same file may have another path, and another analysis, in another run."""
    first, second = ({"sources": {f"{name}.json": name}} for name in ("abc", "def"))
    runs = runs_with(
        {"syntaxgym-a": suite(2) | first, "syntaxgym-a-2": suite(7) | second}, {"syntaxgym-a": suite(4) | second}
    )
    rows = [row.split("<td") for row in syntaxgym_section(runs).split("<tr>") if ": 1 &lt; 2" in row]
    assert [[number for number in ("20.0", "70.0", "40.0") if number in row] for row in map("".join, rows)] == [
        ["20.0"],
        ["70.0", "40.0"],
    ]


def pairs(successes, source):
    proportion = {"value": successes / 10, "trials": 10, "successes": successes, "lower": 0.0, "upper": 1.0}
    accuracy = {"sentence": proportion, "known": proportion, "one_prefix": None, "two_prefix": None}
    groups = {"fields": {}, "phenomena": {}, "paradigms": {}, "phenomenon_of": {}}
    return {"kind": "blimp", "name": "eng", "overall": accuracy, "sources": {"eng.tsv": source}, **groups}


def test_minimal_pairs_of_different_files_have_tables_of_their_own():
    runs = runs_with({"blimp-eng": pairs(2, "abc")}, {"blimp-eng": pairs(7, "def")}, {"blimp-eng": pairs(4, "abc")})
    _, first, second = blimp_section(runs).split("<h3>Minimal pairs: ")
    assert [part.partition("</h3>")[0] for part in (first, second)] == ["eng", "eng (2)"]
    assert [[number for number in ("20.0", "70.0", "40.0") if number in part] for part in (first, second)] == [
        ["20.0", "40.0"],
        ["70.0"],
    ]
