"""Blocks: what is left of every 1,000 lines is whole windows of the stream, and everything else is counted."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.support.errors import DataError, UsageError
from structattn.support.special_tokens import EOS
from structattn.tasks.language_modeling import lines as blocks
from structattn.tasks.language_modeling.lines import cut_into_blocks
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.batching.sequences import make_stream_batch, stream_batches
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.text_statistics import text_statistics
from structattn.text.tokenization.encoding import EncodedLines

LENGTHS = st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=6)


def numbered(chunks):
    """Lines of these lengths whose tokens count from 10."""
    start = 10
    for lengths in chunks:
        total = sum(lengths)
        yield EncodedLines(np.arange(start, start + total, dtype=np.int32), np.array(lengths, np.int64))
        start += total


def stream_of(lengths, tokens):
    """The targets of a stream: each line with its end, one line after the other."""
    tokens = iter(tokens)
    return [token for length in lengths for token in [*(next(tokens) for _ in range(length)), EOS]]


@given(chunks=LENGTHS, length=st.integers(1, 12))
def test_blocks_are_those_of_the_definition(chunks, length):
    batch_size, lengths = 5, [each for lengths in chunks for each in lengths]
    stream, start, expected = iter(range(10, 10 + sum(lengths))), 0, list[int]()
    while start < len(lengths):
        targets = stream_of(lengths[start : start + batch_size], stream)
        kept = targets[: len(targets) - len(targets) % length]
        expected += [*kept[:-1], EOS] if kept else []  # a line that is cut ends there
        start += batch_size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LINES_IN_BATCH", batch_size)
        found = list(cut_into_blocks(numbered(chunks), length))
    targets = stream_of(np.concatenate([[], *(each.lengths for each in found)]).astype(int),
                        np.concatenate([[], *(each.tokens for each in found)]).tolist())  # fmt: skip
    assert targets == expected
    assert len(targets) % length == 0


def test_a_folder_of_blocks_states_what_was_cut(tmp_path):
    (tmp_path / "text").write_text("a b c\n" * 1500)
    paths = [tmp_path / "text"] * 2
    prepare_language_modeling(tmp_path / "data", *paths, settings=TextSettings(mode="stream", block_length=128))
    prepared = open_prepared(tmp_path / "data")
    split, found = prepared.split("train"), text_statistics(prepared, "train")
    assert split.num_targets == (4000 // 128 + 2000 // 128) * 128
    assert (found.tokens_read, found.tokens_kept) == (4500, split.num_tokens)
    assert found.tokens_read == found.tokens_kept + found.tokens_cut + found.tokens_dropped
    assert (found.lines_read, found.words, found.characters, found.bytes) == (1500, 4500, 7500, 7500)


def test_text_without_a_block_is_refused(tmp_path):
    (tmp_path / "text").write_text("a b c\nd e f\n")
    settings, paths = TextSettings(mode="stream", block_length=9), [tmp_path / "text"] * 2
    with pytest.raises(DataError, match=r"no 1,000 of its lines make a block, so nothing is left; expected a shorter"):
        prepare_language_modeling(tmp_path / "data", *paths, settings=settings)
    assert list(tmp_path.iterdir()) == [tmp_path / "text"]
    prepare_language_modeling(tmp_path / "data", *paths, settings=replace(settings, block_length=8))


def test_blocks_need_a_stream():
    with pytest.raises(UsageError, match="block_length applies to mode stream"):
        TextSettings(block_length=128)


@pytest.mark.parametrize("length", [1, 3, 4, 7, 100])
@pytest.mark.parametrize("lengths", [[0], [3, 0, 2], [5, 5], [0, 0, 1]])
def test_windows_of_a_stream_predict_every_token_once(lengths, length):
    tokens = np.arange(10, 10 + sum(lengths), dtype=np.int32)
    sequences = Sequences(tokens, np.cumsum([0, *lengths]))
    windows = np.concatenate(stream_batches(sequences.num_targets, length, 2, seed=0, epoch=None))
    batch = make_stream_batch(sequences, windows, length)
    found = [token for row, size in zip(batch.targets, batch.lengths, strict=True) for token in row[:size].tolist()]
    assert found == stream_of(lengths, tokens.tolist())
