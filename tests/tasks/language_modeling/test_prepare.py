"""Preparation of text: every row of the contract's table on text, and out-of-vocabulary words."""

import gzip
import os

import pytest

from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared, verify_sources

GOOD = b"a b\nb a\n"


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def prepare(tmp_path, train=GOOD, valid=GOOD, test=GOOD, name="folder", workers=1, **options):
    """Prepare three texts; gives the opened folder and the notices."""
    texts = {"train": train, "valid": valid, "test": test}
    paths = [write(tmp_path / f"{split}.txt", content) for split, content in texts.items()]
    notices = prepare_language_modeling(tmp_path / name, *paths, TextSettings(**options), workers=workers)
    return open_prepared(tmp_path / name), notices


def lines(prepared, split="train"):
    sequences = prepared.split(split)
    return [prepared.tokenizer.decode(sequences[index]) for index in range(len(sequences))]


def refusal(tmp_path, error=DataError, **arguments):
    with pytest.raises(error) as caught:
        prepare(tmp_path, **arguments)
    assert {path.name for path in tmp_path.iterdir()} <= {"train.txt", "valid.txt", "test.txt"}  # nothing half-written
    return caught.value


# The contract's table, row by row


@pytest.mark.parametrize("mode", ["sentences", "stream"])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize(
    ("content", "line", "column", "reason"),
    [
        (b"a b\nb \xc3( a\n", 2, 3, "not UTF-8"),
        (b"a b\nb a\na\0b\n", 3, 2, "NUL"),
        (b"a b\nb a \xe2\x82", 2, 5, "not UTF-8"),  # truncated in the middle of a character
        ("a b\n".encode("utf-16"), 1, 1, "not UTF-8"),
    ],
)
def test_invalid_text_is_rejected(tmp_path, mode, split, content, line, column, reason):
    error = refusal(tmp_path, mode=mode, **{split: content})
    assert (error.path, error.line, error.column) == (tmp_path / f"{split}.txt", line, column)
    assert reason in error.reason


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: None, "No such file"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (os.mkfifo, "not a regular file"),
    ],
)
def test_unreadable_files_are_rejected(tmp_path, make, reason):
    good, bad = write(tmp_path / "good.txt", GOOD), tmp_path / "bad.txt"
    make(bad)
    for order in [(bad, good, good), (good, good, bad)]:
        with pytest.raises(DataError, match=reason) as caught:
            prepare_language_modeling(tmp_path / "folder", *order)
        assert caught.value.path == bad
    assert {path.name for path in tmp_path.iterdir()} <= {"good.txt", "bad.txt"}


def test_a_truncated_gzip_is_rejected(tmp_path):
    content = b"".join(b"a line of words %d\n" % number for number in range(1000))
    whole = write(tmp_path / "train.txt.gz", gzip.compress(content))
    valid = write(tmp_path / "valid.txt", content)
    prepare_language_modeling(tmp_path / "folder", whole, valid)
    assert len(open_prepared(tmp_path / "folder").split("train")) == 1000
    cut = write(tmp_path / "cut.txt.gz", whole.read_bytes()[:-9])
    with pytest.raises(DataError, match="truncated") as caught:
        prepare_language_modeling(tmp_path / "other", cut, valid)
    assert (caught.value.path, caught.value.line is None, caught.value.column is None) == (cut, False, False)
    assert not any(path.name.startswith((".", "other")) for path in tmp_path.iterdir())


def test_a_byte_order_mark_is_dropped_with_one_notice(tmp_path, caplog):
    prepared, notices = prepare(tmp_path, train=b"\xef\xbb\xbf" + GOOD)
    assert lines(prepared) == ["a b", "b a"]
    assert notices == (f"{tmp_path / 'train.txt'}: the byte-order mark at the start is dropped",)
    assert [record.getMessage() for record in caplog.records] == list(notices)


def test_carriage_returns_of_line_ends_are_dropped_with_one_notice(tmp_path, caplog):
    prepared, notices = prepare(tmp_path, valid=b"a b\r\nb a\r\n")
    assert lines(prepared, "valid") == ["a b", "b a"]
    assert notices == (f"{tmp_path / 'valid.txt'}: lines end in CRLF; the CR is dropped",)
    assert [record.getMessage() for record in caplog.records] == list(notices)


def test_a_lone_carriage_return_is_an_ordinary_character(tmp_path):
    prepared, notices = prepare(tmp_path, train=b"a\rb b\n\r a\na b\r")
    assert lines(prepared) == ["a\rb b", "\r a", "a b\r"]
    assert notices == ()


@pytest.mark.parametrize("level", ["word", "character", "byte"])
@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_line_breaks_of_splitlines_are_ordinary_characters(tmp_path, character, level):
    text = f"a{character}b {character}\n{character}\n"
    prepared, notices = prepare(tmp_path, *[text] * 3, level=level)
    assert lines(prepared) == text.split("\n")[:-1]
    assert notices == ()


def test_empty_lines_are_kept_in_a_stream(tmp_path):
    prepared, notices = prepare(tmp_path, train=b"\na b\n \n\n", mode="stream")
    split = prepared.split("train")
    assert split.lengths.tolist() == [0, 2, 0, 0]
    assert split.stream(0, 100).tolist() == [2, 2, 3, 4, 2, 2, 2]
    assert prepared.kind == "stream"
    assert notices == ()


@pytest.mark.parametrize(("content", "line"), [(b"a b\n\nb a\n", 2), (b"a b\nb a\n \t\n", 3), (b"\r\na\n", 1)])
def test_empty_lines_are_an_error_in_sentence_mode(tmp_path, content, line):
    error = refusal(tmp_path, valid=content)
    assert (error.path, error.line, error.column) == (tmp_path / "valid.txt", line, 1)
    assert "an empty line; skip_empty drops" in error.reason


def test_empty_lines_are_dropped_counted_and_reported_with_skip_empty(tmp_path):
    prepared, notices = prepare(tmp_path, train=b"\na b\n \nb a\n\n", skip_empty=True)
    assert lines(prepared) == ["a b", "b a"]
    assert notices == (f"{tmp_path / 'train.txt'}: 3 empty lines are skipped",)
    assert prepared.header.extra["skipped_lines"] == {"train": 3, "valid": 0, "test": 0}


def test_a_long_line_is_rejected_in_sentence_mode(tmp_path):
    assert lines(prepare(tmp_path, train="b a\nä  b a\n", max_line_tokens=3, name="three")[0]) == ["b a", "ä b a"]
    for path in sorted((tmp_path / "three").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "three").rmdir()
    error = refusal(tmp_path, train="b a\nä  b a\n", max_line_tokens=2)
    assert (error.line, error.column) == (2, 7)  # where the first word too many begins
    assert "3 tokens, but max_line_tokens is 2" in error.reason
    error = refusal(tmp_path, train="b a\näb a\n", max_line_tokens=3, level="character")
    assert (error.line, error.column) == (2, 5)


def test_a_line_of_a_million_tokens(tmp_path):
    text = b"a b\n" + b"a b " * 500_000 + b"\nb\n"
    error = refusal(tmp_path, train=text)
    assert (error.line, error.column) == (2, 200_001)
    assert "1000000 tokens, but max_line_tokens is 100000" in error.reason
    prepared, notices = prepare(tmp_path, train=text, mode="stream")
    assert prepared.split("train").lengths.tolist() == [2, 1_000_000, 1]
    assert notices == ()


def test_a_changed_source_is_rejected_with_both_digests(tmp_path):
    prepared, _ = prepare(tmp_path)
    assert verify_sources(prepared) == ()
    write(tmp_path / "valid.txt", GOOD + b"a\n")
    with pytest.raises(DataError, match=r"valid\.txt: changed since .* was [0-9a-f]{64} and is [0-9a-f]{64}"):
        verify_sources(prepared)


# What the table leaves open


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("mode", ["sentences", "stream"])
def test_an_empty_file_is_rejected(tmp_path, content, mode):
    assert "holds no lines" in refusal(tmp_path, valid=content, mode=mode).reason


def test_a_file_of_empty_lines_is_rejected_in_sentence_mode(tmp_path):
    assert "all of its 2 lines are blank; expected text" in refusal(tmp_path, train=b"\n \n", mode="stream").reason
    assert "all of its 2 lines are empty" in refusal(tmp_path, train=b"\n\n", skip_empty=True).reason


@pytest.mark.parametrize("control", ["<pad>", "<bos>", "<eos>"])
@pytest.mark.parametrize("mode", ["sentences", "stream"])
def test_names_of_control_symbols_are_rejected(tmp_path, control, mode):
    error = refusal(tmp_path, test=f"\ufeffa b\nä {control}\n", mode=mode)
    assert (error.path, error.line, error.column) == (tmp_path / "test.txt", 2, 4)
    assert f"the word {control} is the name of a control symbol" in error.reason


def test_columns_count_the_byte_order_mark(tmp_path):
    assert refusal(tmp_path, train="\ufeffa <eos>\n").column == 6


def test_literal_unknown_words_are_the_unknown_symbol(tmp_path):
    prepared, notices = prepare(tmp_path, train=b"a <unk> b\n")
    assert prepared.vocabulary.symbols[3:] == ("<unk>", "a", "b")
    assert prepared.split("train")[0].tolist() == [4, 3, 5]
    assert prepared.header.extra["unknown_tokens"] == {"train": 1, "valid": 0, "test": 0}
    assert notices == ("of the tokens, 33.3% of train are <unk>, so scores say little about the text",)


def test_out_of_vocabulary_words_are_unknown_and_reported(tmp_path):
    prepared, notices = prepare(tmp_path, valid=b"a c d\n", test=b"c\n")
    assert prepared.split("valid")[0].tolist() == [4, 3, 3]
    assert prepared.header.extra["unknown_tokens"] == {"train": 0, "valid": 2, "test": 1}
    assert len(notices) == 2
    assert notices[0].startswith("of the tokens, 66.7% of valid, 100.0% of test are <unk>")
    assert notices[1].startswith("2 tokens of valid and 1 token of test are <unk>, which does not occur in train")


def test_no_unk_if_it_is_not_needed(tmp_path):
    assert prepare(tmp_path)[0].vocabulary.symbols == ("<pad>", "<bos>", "<eos>", "a", "b")


@pytest.mark.parametrize("option", [{"min_count": 2}, {"max_symbols": 1}])
def test_rare_words_become_unknown(tmp_path, option):
    prepared, _ = prepare(tmp_path, train=b"a b a\n", valid=b"b a\n", **option)
    assert prepared.vocabulary.symbols[3:] == ("<unk>", "a")
    assert lines(prepared, "valid") == ["<unk> a"]
    assert {"min_count": 1, "max_symbols": None, **option}.items() <= prepared.header.tokenizer.items()


def test_bytes_never_have_unk(tmp_path):
    prepared, _ = prepare(tmp_path, valid="ü\u2028 <eos>\n", level="byte")
    assert prepared.vocabulary.size == 259
    assert lines(prepared, "valid") == ["ü\u2028 <eos>"]


def test_test_text_may_be_missing(tmp_path):
    path = write(tmp_path / "a.txt", GOOD)
    prepare_language_modeling(tmp_path / "folder", path, path)
    assert open_prepared(tmp_path / "folder").splits == ("train", "valid")


@pytest.mark.parametrize(
    "options",
    [
        {"level": "words"},
        {"mode": "lines"},
        {"min_count": 0},
        {"max_symbols": 0},
        {"max_line_tokens": 0},
        {"level": "byte", "min_count": 2},
    ],
)
def test_invalid_options_are_rejected(tmp_path, options):
    refusal(tmp_path, error=UsageError, **options)


def test_a_folder_that_is_not_empty_is_rejected_before_reading(tmp_path):
    write(tmp_path / "mine", "mine")
    with pytest.raises(DataError, match="exists and is not empty"):
        prepare_language_modeling(tmp_path, tmp_path / "none", tmp_path / "none")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_that_changes_between_the_passes_is_rejected(tmp_path, monkeypatch):
    import structattn.tasks.language_modeling.prepare as module

    survey = module._survey

    def change_after(file, *arguments):
        found = survey(file, *arguments)
        write(file.path, b"b b\n")
        return found

    monkeypatch.setattr(module, "_survey", change_after)
    assert "changed while it was being prepared" in refusal(tmp_path).reason


def test_preparing_twice_gives_the_same_folder(tmp_path):
    first, _ = prepare(tmp_path, name="one")
    second, _ = prepare(tmp_path, name="two")
    assert first.digest == second.digest


# Subwords and worker processes

SUBWORDS = ["bpe", "sentencepiece-bpe", "sentencepiece-unigram"]
TEXT = "".join(f"der {n % 7}. größte  жук lowest\tnewer {n % 31}\n" for n in range(400))


@pytest.mark.parametrize("level", ["word", "character", "byte", *SUBWORDS])
def test_worker_processes_write_the_same_files(tmp_path, monkeypatch, level):
    if level in SUBWORDS:
        pytest.importorskip("tokenizers", reason="the extra mt is not installed")
        pytest.importorskip("sentencepiece", reason="the extra mt is not installed")
    monkeypatch.setattr("structattn.tasks.language_modeling.prepare._CHUNK_BYTES", 1000)
    monkeypatch.setattr("structattn.text.reading._CHUNK", 500)
    options = {"train": TEXT, "valid": TEXT[:3000], "level": level, "vocabulary_size": 45, "min_count": 1}
    one, notices = prepare(tmp_path, name="one", **options)
    two, again = prepare(tmp_path, name="two", workers=2, **options)
    assert (one.digest, notices) == (two.digest, again)
    expected = [one.tokenizer.encode(line) for line in TEXT.split("\n")[:-1]]
    assert [one.split("train")[index].tolist() for index in range(400)] == expected
    decoded = lines(one)
    assert decoded[0] == "der 0. größte жук lowest newer 0" if level in ("word", *SUBWORDS) else decoded[0] in TEXT


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("bad", "line", "column", "reason"),
    [
        (b"a \xff\n", 201, 3, "not UTF-8"),
        (b"a\n\nb \xff\n", 202, 1, "an empty line"),  # the first of two errors
        (b"b <eos>\n", 201, 3, "control symbol"),
    ],
)
def test_errors_are_those_of_the_first_line_in_whatever_chunk(
    tmp_path, monkeypatch, workers, bad, line, column, reason
):
    monkeypatch.setattr("structattn.tasks.language_modeling.prepare._CHUNK_BYTES", 100)
    monkeypatch.setattr("structattn.text.reading._CHUNK", 64)
    content = b"a b c\n" * 200 + bad + b"a b\n\xff\n" * 200
    error = refusal(tmp_path, train=content, workers=workers)
    assert (error.line, error.column) == (line, column)
    assert reason in error.reason


def test_lines_of_too_many_subwords_are_refused(tmp_path):
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    error = refusal(tmp_path, train="ab\nab abcdefg\n", level="bpe", vocabulary_size=1, max_line_tokens=8)
    assert (error.line, error.column) == (2, 1)
    assert "tokens, but max_line_tokens is 8" in error.reason


def test_text_is_normalized_on_request(tmp_path):
    prepared, _ = prepare(tmp_path, train="ＡB\u00a0 c\n", valid="ab c\n", nfkc=True, lowercase=True)
    assert lines(prepared) == ["ab c"]
    assert prepared.tokenizer.encode("Ab C") == prepared.split("valid")[0].tolist()
