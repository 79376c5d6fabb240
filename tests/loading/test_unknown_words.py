"""Words outside the vocabulary are said once for each text or file, by all that reads text of users."""

from tests.program import succeed

from structattn.loading.evaluate import evaluate_run
from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.training.run_training import train

WARNING = "1 of {} tokens are not in the vocabulary and are read as <unk>, the first in line 2"


def command(*arguments, **options):
    return succeed(*arguments, **options).stderr


def test_translations_warn_of_unknown_words(run_dir, tmp_path, caplog):
    run = load(run_dir("translation"))
    run.translate(["eins", "кошка zwei", "<unk> drei"])
    assert caplog.messages == [f"source: {WARNING.format(5)}"]
    assert f"standard input: {WARNING.format(3)}" in command("translate", run.run_dir, input="eins\nкошка zwei\n")
    caplog.clear()
    run.translate(["eins"])
    assert caplog.messages == []


def test_what_only_looks_like_the_symbol_is_unknown(run_dir, caplog):
    """At the level of characters or subwords, or within a word, ``<unk>`` is no token."""
    load(run_dir("translation")).translate(["eins", "a<unk>b"])
    assert caplog.messages == [f"source: {WARNING.format(2)}"]


def test_scores_of_translations_warn_of_unknown_words_of_either_side(run_dir, tmp_path, caplog):
    run = load(run_dir("translation"))
    run.score([("eins", "one"), ("кошка", "two")])
    run.score([("eins", "one"), ("zwei", "cat")])
    assert caplog.messages == [f"sources: {WARNING.format(2)}", f"translations: {WARNING.format(2)}"]
    (tmp_path / "de").write_text("eins\nкошка\n")
    (tmp_path / "en").write_text("one\ncat\n")
    shown = command("score", run.run_dir, "--source", tmp_path / "de", "--target", tmp_path / "en")
    assert f"{tmp_path / 'de'}: {WARNING.format(2)}" in shown
    assert f"{tmp_path / 'en'}: {WARNING.format(2)}" in shown


def test_parsers_warn_of_unknown_words_and_evaluation_does_not(run_dir, caplog):
    load(run_dir("parser")).predict(["the cat sat .", "the кошка sat ."])
    assert caplog.messages == [f"texts: {WARNING.format(8)}"]
    caplog.clear()
    evaluate_run(load(run_dir("translation")), "valid")
    assert not [message for message in caplog.messages if "not in the vocabulary" in message]


def test_words_that_are_spelled_are_not_unknown(names, tmp_path, caplog):
    """A hybrid model composes unknown source words of their characters."""
    prepared = names.prepare(tmp_path, train=60, valid=5)
    train(resolve_settings(names.tree(prepared.path, max_updates=1)), tmp_path / "run")
    run = load(tmp_path / "run")
    caplog.clear()
    run.translate(["xyzzy"])
    run.score([("xyzzy", "Xyzzy")])
    assert caplog.messages == []
