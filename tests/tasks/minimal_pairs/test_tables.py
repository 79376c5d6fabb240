"""Minimal pairs in tables, as of MultiBLiMP and BLiMP-NL: columns by their names, and errors with their line."""

import gzip
import json

import pytest
from tests.program import succeed
from tests.tasks.text_runs import trained_on

from structattn.cli.report_page import write_report
from structattn.support.errors import DataError
from structattn.tasks.minimal_pairs.data import MinimalPair, read_minimal_pairs, suite_name
from structattn.text.reading import Notices

MULTIBLIMP = (
    "sen\twrong_sen\tlang\tphenomenon\tgrammatical_feature\tverb\n"
    "Bo sees a dog .\tBo see a dog .\teng\tSV-#\tNumber\tsees\n"
    '"A ""dog"", sleeps"\tA dog sleep\teng\tSV-#\tNumber\tsleeps\n'
    "Bo sees\tBo seest\teng\tSV-P\tPerson\tsees\n"
)
BLIMP_NL = (
    "item_id,linguistic_phenomenon,paradigm,sentence_good,sentence_bad\n"
    '1,topicalization,island,"Een hond, die slaapt.",Een hond die slaapt.\n'
    "2,relativization,island,Bo ziet hem.,Bo hem ziet.\n"
)


def read(path, text):
    path.write_text(text)
    return read_minimal_pairs(path, Notices())


def test_multiblimp(tmp_path):
    first, second, third = read(tmp_path / "eng.tsv", MULTIBLIMP)
    assert (first.good, first.bad) == ("Bo sees a dog .", "Bo see a dog .")
    assert (first.phenomenon, first.paradigm, first.field, first.line) == ("SV-#", "SV-#: Number", "eng", 2)
    assert second.good == 'A "dog", sleeps'
    assert (third.paradigm, third.continuations, third.line) == ("SV-P: Person", {}, 4)
    assert suite_name(tmp_path / "eng.tsv", [first, second, third]) == "eng"


def test_blimp_nl(tmp_path):
    first, second = read(tmp_path / "blimp_nl.csv", BLIMP_NL)
    assert (first.good, first.bad) == ("Een hond, die slaapt.", "Een hond die slaapt.")
    assert [each.paradigm for each in (first, second)] == ["topicalization: island", "relativization: island"]
    assert first.field == "blimp_nl"


def test_columns_by_any_of_their_names(tmp_path):
    (pair,) = read(tmp_path / "x.txt", "Sentence good;Sentence-Bad\nBo sees; Bo see\n")
    assert (pair.good, pair.bad, pair.phenomenon, pair.paradigm, pair.field) == ("Bo sees", "Bo see", "x", "x", "x")


PAIR = {"sentence_good": "Bo sees", "sentence_bad": "Bo see", "UID": "p", "linguistics_term": "l", "field": "f"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.tsv", "\n \nsen\twrong_sen\n\nBo sees\tBo see\n \n"),
        ("x.csv", "\n\n[1],sen,wrong_sen\n\n1,Bo sees,Bo see\n"),
        ("x.jsonl", f"\n\n\n \n{json.dumps(PAIR)}\n\n"),
        ("x.txt", f"\n\n\n\n{json.dumps(PAIR)}\n\n"),
    ],
)
def test_blank_lines_are_skipped(tmp_path, name, text):
    (pair,) = read(tmp_path / name, text)
    assert (pair.good, pair.bad, pair.line) == ("Bo sees", "Bo see", 5)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_files_named_json_are_no_tables(tmp_path, name):
    with pytest.raises(DataError, match=":1: holds list; expected a JSON object"):
        read(tmp_path / name, f"[{json.dumps(PAIR)}]\n")


def test_a_folder_of_several_kinds(tmp_path):
    (tmp_path / "b.csv").write_text(BLIMP_NL)
    with gzip.open(tmp_path / "a.tsv.gz", "wt") as file:
        file.write(MULTIBLIMP)
    assert [each.path.name for each in read_minimal_pairs(tmp_path, Notices())] == ["a.tsv.gz"] * 3 + ["b.csv"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sen\tverb\nBo sees\tsees\n", r"eng\.tsv:1: has the columns sen, verb; expected sentence_bad or wrong_sen"),
        ("sen\tSen\twrong_sen\na\tb\tc\n", r"eng\.tsv:1: has the column sen twice; expected it once"),
        ("Bo sees\n", r":1: has the columns Bo sees; expected sentence_good or sen, and sentence_bad or wrong_sen"),
        (MULTIBLIMP + "Bo sees\tBo see\n", r":5: has 2 columns; the header has 6"),
        ("sen\twrong_sen\nBo sees\t \n", r":2: wrong_sen has 0 characters; expected 1 to 10,000"),
        ("sen\twrong_sen\nBo sees\t" + "x" * 10_001, r":2: wrong_sen has 10,001 characters"),
        ('sen\twrong_sen\n"Bo" sees\tBo see\n', r":2: not a table: .* expected after .*; a cell that begins with"),
        ("\n[sen]\twrong_sen\n", r":2: has the columns \[sen\], wrong_sen; expected"),
        ("\nsen\twrong_sen\n\nBo sees\n", r":4: has 1 columns; the header has 2"),
        ('sen\twrong_sen\n"Bo sees\tBo see\n', r":2: not a table: unexpected end of data"),
        ("sen\twrong_sen\n", r"holds no minimal pairs; expected \*\.jsonl"),
    ],
)
def test_malformed_tables_are_refused_with_their_line(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path / "eng.tsv", text)


@pytest.mark.usefixtures("without_drawing")
def test_pairs_not_of_blimp_are_stored_by_name_without_its_published_accuracies(tmp_path):
    trained_on(tmp_path, min_count=2)
    (tmp_path / "eng.tsv").write_text(MULTIBLIMP)
    shown = succeed("evaluate", tmp_path / "run", "--suite", "blimp", "--file", tmp_path / "eng.tsv")
    assert "GPT-2" not in shown.output
    assert "SV-#: Number" in shown.output
    kept = json.loads((tmp_path / "run/analyses/blimp-eng.json").read_text())
    assert {name: each["sentence"]["trials"] for name, each in kept["phenomena"].items()} == {"SV-#": 2, "SV-P": 1}
    page = write_report([tmp_path / "run"], tmp_path / "report").read_text()
    assert "Minimal pairs: eng" in page
    assert "Warstadt" not in page


def test_a_suite_is_blimp_only_as_a_whole(tmp_path):
    """Its overall accuracy stands beside published ones; others are told apart by the names of their files."""
    pairs = [
        MinimalPair("a", "b", f"paradigm_{number}", "binding", "syntax", {}, tmp_path / "a.jsonl", 1)
        for number in range(67)
    ]
    assert suite_name(tmp_path / "blimp", pairs) == "BLiMP"
    assert suite_name(tmp_path / "island.effects.jsonl.gz", pairs[1:]) == "island.effects"
    assert suite_name(tmp_path / "blimp", pairs[1:]) == "blimp"
    for name in ("BLiMP", "BLiMP.jsonl"):
        assert suite_name(tmp_path / name, pairs[1:]) == "BLiMP-part"
        assert suite_name(tmp_path / name, pairs) == "BLiMP"


def test_names_of_files_with_dots_are_different_groups(tmp_path):
    for name in ("agr.en.tsv", "agr.de.tsv"):
        (tmp_path / name).write_text("sen\twrong_sen\nBo sees\tBo see\n")
    assert sorted(pair.phenomenon for pair in read_minimal_pairs(tmp_path, Notices())) == ["agr.de", "agr.en"]
