"""Shortlists of runs: learned once, verified, and independent of the other lines."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from structattn.cli.app import app
from structattn.loading.load import open_run
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError
from structattn.tasks.translation.shortlist import Shortlist, run_shortlist, shortlist_path
from structattn.tasks.translation.translators import make_translator
from structattn.training.run_training import train

LINES = [f"{a} {b}" for a in ("rot", "gelb", "blau") for b in ("Hund", "Kind")]
WORDS = {"rot": "red", "gelb": "yellow", "blau": "blue", "Hund": "dog", "Kind": "child"}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Return a run of one update, whose translations are arbitrary words."""
    folder = tmp_path_factory.mktemp("shortlist")
    targets = [" ".join(WORDS[word] for word in line.split()) for line in LINES]
    for side, lines in (("de", LINES), ("en", targets)):
        (folder / f"text.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(folder / "text.de"), str(folder / "text.en")]
    splits = [part for name in ("train", "valid") for part in (f"--{name}", *files)]
    made = CliRunner().invoke(app, ["prepare", "parallel", *splits, "--level", "word", "-o", str(folder / "data")])
    assert made.exit_code == 0, made.output
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    settings = {
        "task": "translation",
        "data": str(folder / "data"),
        "model": {"kind": "encoder_decoder", **sizes},
        "training": {"max_updates": 1, "batches": {"kind": "pairs", "max_tokens": 100}},
    }
    train(resolve_settings(settings), folder / "run")
    return folder / "run"


@pytest.fixture(autouse=True)
def without_shortlist(run_dir):
    shortlist_path(run_dir).unlink(missing_ok=True)


def limited(monkeypatch):
    monkeypatch.setattr("structattn.tasks.translation.shortlist.NUM_TRANSLATIONS", 1)
    monkeypatch.setattr("structattn.tasks.translation.shortlist.NUM_FREQUENT", 0)


def test_candidates_are_those_of_the_source_the_frequent_ones_and_the_prefix():
    shortlist = Shortlist(np.array([[-1, -1], [9, 4], [7, -1]], dtype=np.int32), np.array([5, 4], dtype=np.int32))
    found = shortlist.candidates([[1, 2], [2]], [[], [8]])
    assert found.tolist() == [[2, 3, 4, 5, 7, 9], [2, 3, 4, 5, 7, 8]]
    assert shortlist.candidates([[0]], [[]]).tolist() == [[2, 3, 4, 5]]


def test_translations_hold_translations_of_the_source_only(run_dir, monkeypatch):
    limited(monkeypatch)
    translator = make_translator([open_run(run_dir)], shortlist=True)
    for line, (best,) in zip(LINES, translator(LINES), strict=True):
        assert set(best.text.split()) <= {WORDS[word] for word in line.split()} | {"<unk>"}
    ((forced,),) = translator(LINES[:1], prefixes=["child"])
    assert forced.text.split()[0] == "child", "the tokens of a prefix are candidates"


def test_translations_do_not_depend_on_the_batch(run_dir, monkeypatch):
    limited(monkeypatch)
    translator = make_translator([open_run(run_dir)], shortlist=True)
    alone = [translator([line])[0][0] for line in LINES]
    for found, expected in zip(translator(LINES), alone, strict=True):
        assert found[0].text == expected.text
        assert found[0].score == pytest.approx(expected.score, rel=1e-5)


def test_translations_without_a_shortlist_may_hold_all_tokens(run_dir):
    run = open_run(run_dir)
    found, others = (
        {word for (best,) in run.translate(LINES, shortlist=shortlist) for word in best.text.split()}
        for shortlist in (True, False)
    )
    assert found <= {*WORDS.values(), "<unk>"}
    assert not others <= found, "the vocabulary is shared with the source"


def test_it_is_learned_once(run_dir, monkeypatch):
    first = run_shortlist(open_run(run_dir))
    written = shortlist_path(run_dir).read_bytes()
    monkeypatch.setattr("structattn.tasks.translation.shortlist.likeliest_translations", None)
    again = run_shortlist(open_run(run_dir))
    assert np.array_equal(first.translations, again.translations)
    assert np.array_equal(first.frequent, again.frequent)
    assert shortlist_path(run_dir).read_bytes() == written


@pytest.mark.parametrize("key", ["data_digest", "format_version", "frequent"])
def test_a_changed_file_is_refused(run_dir, key):
    run_shortlist(open_run(run_dir))
    content = json.loads(shortlist_path(run_dir).read_text())
    shortlist_path(run_dir).write_text(json.dumps(content | {key: 0}))
    with pytest.raises(DataError, match="changed since it was written"):
        run_shortlist(open_run(run_dir))


def test_the_shortlist_of_other_data_is_refused(run_dir, monkeypatch):
    monkeypatch.setattr("structattn.tasks.translation.shortlist.FORMAT_VERSION", 0)
    run_shortlist(open_run(run_dir))
    monkeypatch.undo()
    with pytest.raises(DataError, match="remove it to learn it anew"):
        run_shortlist(open_run(run_dir))


def test_the_command(run_dir):
    text = "".join(line + "\n" for line in LINES).encode()
    found = CliRunner().invoke(app, ["translate", str(run_dir), "--shortlist"], input=text)
    assert found.exit_code == 0, found.output
    expected = open_run(run_dir).translate(LINES, shortlist=True)
    assert found.stdout == "".join(best.text + "\n" for (best,) in expected)
    assert shortlist_path(run_dir).exists()
    drawn = CliRunner().invoke(app, ["translate", str(run_dir), "--shortlist", "--temperature", "1"], input=text)
    assert drawn.exit_code == 0, drawn.output
