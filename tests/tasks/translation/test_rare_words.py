"""Rare words: every line can be restored from its ids and the stored words behind ``<unk>``."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from structattn.support.errors import DataError
from structattn.support.special_tokens import UNK
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.batching.pairs import make_pair_batch
from structattn.text.folders.prepared import open_prepared

RARE = TokenizerSettings("word", joint=False, threshold=2)
TEXT = "das rad\tthe wheel\ndas rad rollt\tthe wheel rolls\nein <unk>\ta thing rolls\n"
HELD_OUT = "ein rad eiert\tthe wheel wobbles\n"


def texts(prepared, split, side):
    """The lines of a side, each <unk> replaced by its stored word."""
    index, pairs = ("source", "target").index(side), prepared.pairs(split)
    rare, symbols = pairs.rare[index], getattr(prepared.sides, side).vocabulary.symbols
    lines = []
    for number in range(len(pairs)):
        words, placed = [symbols[i] for i in pairs[number][index]], dict(rare.positions(number))
        lines.append(" ".join(rare.words[placed[i] - 1] if i in placed else word for i, word in enumerate(words)))
    return lines


@pytest.mark.parametrize("joint", [True, False])
def test_rare_words_restore_every_line(parallel, tmp_path, joint):
    prepared, _ = parallel.prepare(tmp_path, TEXT, TokenizerSettings("word", joint, threshold=2), HELD_OUT)
    for split, table in (("train", TEXT), ("valid", HELD_OUT)):
        rows = [line.split("\t") for line in table.split("\n")[:-1]]
        assert texts(prepared, split, "source") == [row[0] for row in rows]
        assert texts(prepared, split, "target") == [row[1] for row in rows]
    assert (tmp_path / "folder/source_rare_words.txt").exists() != joint
    target = (tmp_path / "folder/rare_words.txt").read_text().split()
    assert target == (["rollt", "ein", "a", "thing", "eiert", "wobbles"] if joint else ["a", "thing", "wobbles"])


WORDS = st.text("abß\r\x85\u2028", min_size=1, max_size=3)
LINES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LINES, LINES), min_size=1, max_size=8), st.integers(0, 4))
def test_rare_words_restore_any_text(parallel, tmp_path_factory, pairs, threshold):
    table = "".join(f"{source}x\t{target}x\n" for source, target in pairs)  # x, so that no CR stands before the end
    folder = tmp_path_factory.mktemp("any")
    prepared, _ = parallel.prepare(folder, table, TokenizerSettings("word", threshold=threshold), table)
    assert texts(prepared, "train", "target") == [target + "x" for _, target in pairs]
    assert texts(prepared, "valid", "source") == list(prepared.texts("valid", "source"))


def test_the_word_unk_has_no_characters(parallel, tmp_path):
    prepared, _ = parallel.prepare(tmp_path, TEXT, RARE, HELD_OUT)
    rare = prepared.pairs("train").rare[0]
    assert prepared.pairs("train").source[2].tolist() == [UNK, UNK]
    assert rare[2].tolist() == [2, 0]
    assert [rare.words[n - 1] for _, n in rare.positions(2)] == ["ein"]


def test_batches_have_the_characters_of_unknown_words(parallel, tmp_path):
    prepared, _ = parallel.prepare(tmp_path, TEXT, RARE, HELD_OUT)
    batch, speller = make_pair_batch(prepared.pairs("train"), [1, 2, 1]), prepared.sides.source.character_tokenizer
    assert batch.unknown_source_words.index.tolist() == [[0, 0, 1, 0], [2, 0, 0, 0], [0, 0, 1, 0]]
    assert [speller.decode(row) for row in batch.unknown_source_words.characters] == ["rollt", "ein"]
    assert batch.unknown_target_words.index.tolist() == [[0] * 4, [1, 2, 0, 0], [0] * 4]
    assert batch.unknown_target_words.index.shape == batch.targets.shape
    assert batch.to("cpu").unknown_target_words.characters.tolist() == batch.unknown_target_words.characters.tolist()


def test_characters_are_those_of_the_training_text(parallel, tmp_path):
    prepared, _ = parallel.prepare(tmp_path, TEXT, RARE, HELD_OUT)
    assert set(prepared.sides.source.character_tokenizer.vocabulary.symbols[4:]) == set("dasradrolltein<unk>")
    assert prepared.sides.target.character_tokenizer.encode("wy")[2] == UNK


@pytest.mark.parametrize("level", ["bpe", "character", "byte"])
def test_other_levels_have_no_rare_words(parallel, tmp_path, level):
    prepared, _ = parallel.prepare(tmp_path, TEXT, TokenizerSettings(level, size=20), HELD_OUT)
    assert prepared.pairs("train").rare is None
    assert not list((tmp_path / "folder").rglob("*rare*"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rare_words.txt", b"a\nthin\nwobbles\n", "changed since it was written"),
        ("source_characters.txt", b"<pad>\n<bos>\n<eos>\n<unk>\na\n", "source_characters_digest"),
        ("characters.txt", b"<pad>\n<bos>\n<eos>\na\n", "has no <unk>"),
        ("train/rare.bin", b"\0" * 4, "expected 8 from its header"),
        ("train/rare.bin", np.array([1, 9], "<i4").tobytes(), "refers to words 1 to 9; there are 3 words"),
        ("train/source/rare.bin", np.array([1, 2, -1], "<i4").tobytes(), "refers to words -1 to 2"),
    ],
)
def test_damage_is_detected_on_opening(parallel, tmp_path, name, content, reason):
    parallel.prepare(tmp_path, TEXT, RARE, HELD_OUT)
    path = tmp_path / "folder" / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason):
        open_prepared(tmp_path / "folder")
    path.unlink()
    with pytest.raises(DataError, match=path.name.replace(".", r"\.")):
        open_prepared(tmp_path / "folder")


def test_a_folder_without_characters_opens_without_rare_words(parallel, tmp_path):
    parallel.prepare(tmp_path, TEXT, RARE, HELD_OUT)
    folder = tmp_path / "folder"
    header = json.loads((folder / "header.json").read_text())
    for path in [*folder.rglob("*rare*"), *folder.rglob("*characters*")]:
        path.unlink()
        del header["files"][path.relative_to(folder).as_posix()]
    for name in ("characters_digest", "source_characters_digest"):
        del header["tokenizer"][name]
    (folder / "header.json").write_text(json.dumps(header))
    prepared = open_prepared(folder)
    assert prepared.pairs("train").rare is None
    assert make_pair_batch(prepared.pairs("train"), [0]).unknown_source_words is None
