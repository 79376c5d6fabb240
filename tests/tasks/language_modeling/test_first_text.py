"""What a first text needs: held-out lines, a mode and a number of subwords that suit it, and messages with flags."""

import random

import numpy as np
import pytest
from tests.program import invoke

from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared

WRAPPED = (
    "It was a dark and stormy night; the rain fell in\ntorrents, except at occasional intervals.\n\n"
    "The wind swept up the\nstreets.\n"
)
PARAGRAPHS = "It was a dark and stormy night.\n\nThe wind swept up the streets.\n"


def command(*arguments):
    return invoke("prepare", "text", *arguments)


def text_of(prepared, split):
    sequences = prepared.split(split)
    return [prepared.tokenizer.decode(sequences[index]) for index in range(len(sequences))]


@pytest.fixture
def lines(tmp_path):
    generator = random.Random(1)
    found = [" ".join(generator.choices("abcdefgh", k=generator.randint(1, 6))) for _ in range(400)]
    (tmp_path / "text").write_text("".join(line + "\n" for line in found))
    return found


def test_sentences_are_held_out_at_random_and_equal_ones_together(tmp_path, lines):
    result = command("--train", tmp_path / "text", "--hold-out", 0.1, "--mode", "sentences", "-o", tmp_path / "data")
    assert result.exit_code == 0, result.output
    prepared = open_prepared(tmp_path / "data")
    splits = {name: text_of(prepared, name) for name in prepared.splits}
    assert list(splits) == ["train", "valid", "test"]
    assert sorted(line for of_split in splits.values() for line in of_split) == sorted(lines)
    assert not set(splits["train"]) & set(splits["valid"])
    assert not set(splits["valid"]) & set(splits["test"])
    assert 0.04 < len(splits["valid"]) / len(lines) < 0.16
    assert splits["train"] == [line for line in lines if line in set(splits["train"])], "in the order of the file"
    assert prepared.header.extra["hold_out"] == {"valid": 0.1, "test": 0.1}
    assert {source.path for source in prepared.header.sources} == {"../text"}


@pytest.mark.parametrize(
    ("level", "options", "variants"),
    [("word", [], "{} ,{}\t,{}"), ("word", ["--lowercase"], "{},A{} "), ("word", ["--nfkc"], "{},\uff41{}"),
     ("bpe", [], "{}, {}"), ("character", ["--nfkc"], "{},{} "), ("byte", ["--lowercase"], "{},A{}")],
)  # fmt: skip
def test_sentences_that_are_read_alike_are_held_out_together(tmp_path, lines, level, options, variants):
    """Lines with other spaces or, where these are normalized, with "A" or a wide "a" in place of an "a"."""
    forms = variants.split(",")
    written = [form.format(f"a{line}" if form.startswith("{}") else line) for line in lines for form in forms]
    (tmp_path / "text").write_text("".join(line + "\n" for line in written))
    arguments = ("--train", tmp_path / "text", "--hold-out", 0.2, "--mode", "sentences", "--level", level, *options)
    assert command(*arguments, "-o", tmp_path / "data").exit_code == 0
    prepared = open_prepared(tmp_path / "data")
    train, valid, test = (set(text_of(prepared, name)) for name in ("train", "valid", "test"))
    assert valid
    assert not (valid & train | test & train | valid & test)


def test_the_end_of_a_stream_is_held_out(tmp_path, lines):
    (tmp_path / "test").write_text("a b\n")
    arguments = ("--train", tmp_path / "text", "--test", tmp_path / "test", "--hold-out", 0.25, "--mode", "stream")
    assert command(*arguments, "-o", tmp_path / "data").exit_code == 0
    prepared = open_prepared(tmp_path / "data")
    assert (text_of(prepared, "train"), text_of(prepared, "valid")) == (lines[:300], lines[300:])
    assert text_of(prepared, "test") == ["a b"]


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_name_the_line_of_the_file(tmp_path, lines, workers):
    (tmp_path / "text").write_text("".join(line + "\n" for line in [*lines[:211], "a <eos>", *lines[211:]]))
    for mode in ("sentences", "stream"):
        with pytest.raises(DataError, match="<eos> is the name of a control symbol") as refused:
            prepare_language_modeling(
                tmp_path / "data", tmp_path / "text", None, settings=TextSettings(mode=mode),
                hold_out={"valid": 0.4}, workers=workers,
            )  # fmt: skip
        assert (refused.value.line, refused.value.column) == (212, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--valid is not given; expected it, or --hold-out 0.02 to hold out some of the training text"),
        (["--valid", "text", "--test", "text", "--hold-out", "0.1"], "--hold-out has no effect: validation and test"),
        (["--hold-out", "0.5"], "the shares held out add up to 1; nothing is left for 'train'"),
        (["--hold-out", "1.5"], "the share held out for 'valid' is 1.5; expected more than 0 and less than 1"),
    ],
)
def test_shares_that_cannot_be_held_out_are_refused(tmp_path, monkeypatch, lines, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = command("--train", "text", *arguments, "-o", "data")
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_wrapped_paragraphs_are_a_stream_and_it_is_said(tmp_path):
    (tmp_path / "text").write_text(WRAPPED * 3)
    result = command("--train", tmp_path / "text", "--valid", tmp_path / "text", "-o", tmp_path / "data")
    assert result.exit_code == 0, result.output
    assert "lines are wrapped and empty lines end paragraphs, so the text is read as a stream" in result.stderr
    assert "--mode sentences" in result.stderr
    assert open_prepared(tmp_path / "data").kind == "stream"


@pytest.mark.parametrize(
    ("text", "options", "kind"),
    [
        ("a b\nc d\n", (), "sentences"),
        (WRAPPED, ("--mode", "sentences", "--skip-empty"), "sentences"),
        (WRAPPED, ("--skip-empty",), "sentences"),
        ("a b\nc d\n", ("--block-length", 2), "stream"),
        ("a b\nc d\n", ("--mode", "stream"), "stream"),
    ],
)
def test_other_text_is_read_as_before(tmp_path, text, options, kind):
    (tmp_path / "text").write_text(text)
    result = command("--train", tmp_path / "text", "--valid", tmp_path / "text", *options, "-o", tmp_path / "data")
    assert result.exit_code == 0, result.output
    assert open_prepared(tmp_path / "data").kind == kind
    assert "read as a stream" not in result.stderr


@pytest.mark.parametrize(("text", "options"), [(PARAGRAPHS, ()), (WRAPPED, ("--mode", "sentences"))])
def test_empty_lines_of_sentences_are_refused_with_the_flags_that_help(tmp_path, text, options):
    (tmp_path / "text").write_text(text)
    result = command("--train", tmp_path / "text", "--valid", tmp_path / "text", *options, "-o", tmp_path / "data")
    assert result.exit_code == 1
    assert "keeps them (--skip-empty, --mode stream)" in " ".join(result.stderr.split())


@pytest.fixture
def zipf(tmp_path):
    """A text of 20,000 words, half of whose kinds occur once."""
    generator = np.random.default_rng(1)
    ranks = np.minimum(generator.zipf(1.3, 20_000), 50_000)
    words = ["".join(chr(97 + int(digit)) for digit in f"{rank * 7919 % 100003:05d}") for rank in ranks]
    path = tmp_path / "zipf"
    path.write_text("".join(" ".join(words[start : start + 20]) + "\n" for start in range(0, len(words), 20)))
    return path


@pytest.mark.parametrize("level", ["bpe", "sentencepiece-bpe", "sentencepiece-unigram"])
def test_the_number_of_subwords_is_chosen_from_the_text(tmp_path, zipf, level):
    result = command("--train", zipf, "--valid", zipf, "--level", level, "-o", tmp_path / "data")
    assert result.exit_code == 0, result.output
    prepared = open_prepared(tmp_path / "data")
    assert 150 < prepared.vocabulary.size < 300
    assert prepared.header.tokenizer["vocabulary_size"] in range(190, 230)
    assert "whole words that occur once" not in result.stderr
    tiny = tmp_path / "tiny"
    tiny.write_text("a b ab\n")
    assert command("--train", tiny, "--valid", tiny, "--level", level, "-o", tmp_path / "few").exit_code == 0


@pytest.mark.parametrize("level", ["bpe", "sentencepiece-bpe"])
def test_tokens_that_are_words_seen_once_are_warned_of(tmp_path, zipf, level):
    arguments = ("--train", zipf, "--valid", zipf, "--level", level, "--vocabulary-size", 32_000)
    result = command(*arguments, "-o", tmp_path / "data")
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stderr.split())
    assert "tokens of train are whole words that occur once in it" in shown
    assert "a smaller vocabulary_size (--vocabulary-size)" in shown


def test_messages_of_settings_spell_the_flags():
    for options, flags in (
        ({"block_length": 3}, "(--block-length, --mode stream)"),
        ({"level": "bpe", "unknown_classes": True}, "(--unknown-classes)"),
        ({"level": "byte", "min_count": 2}, "(--min-count, --max-symbols)"),
        ({"level": "bpe", "max_symbols": 2}, "(--vocabulary-size)"),
    ):
        with pytest.raises(UsageError) as refused:
            TextSettings(**options)
        assert str(refused.value).endswith(flags)
