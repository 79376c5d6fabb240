"""Data that a sweep prepares: text, with the options of the command."""

from structattn.settings.prepare import FormalLanguageData, TextData
from structattn.sweeps.data_preparation import prepare_data
from structattn.text.folders.prepared import open_prepared


def test_text_is_prepared_as_by_the_command(tmp_path):
    (tmp_path / "text").write_text("A b\na c\n" * 30)
    path = str(tmp_path / "text")
    data = TextData(kind="text", train=path, valid=path, mode="stream", lowercase=True, block_length=7)
    prepare_data(tmp_path / "data", data)
    prepared = open_prepared(tmp_path / "data")
    assert (prepared.kind, prepared.vocabulary.symbols[3:]) == ("stream", ("a", "b", "c"))
    assert prepared.split("train").num_targets == 180 // 7 * 7


def test_all_sizes_of_a_formal_language_are_used(tmp_path):
    sizes = {"train": 30, "valid": 20, "test_per_length": 2, "train_lengths": (6, 8), "test_lengths": (9, 11)}
    data = FormalLanguageData(language="marked-reversal", **sizes, group_size=5, short=15, short_lengths=(1, 3))
    prepare_data(tmp_path / "data", data)
    prepared = open_prepared(tmp_path / "data")
    assert [prepared.header.splits[split].sequences for split in prepared.splits] == [45, 20, 4]
    assert {split: set(prepared.split(split).lengths) for split in ("valid", "test")} == {"valid": {7}, "test": {9, 11}}
    lengths = prepared.split("train").lengths
    assert (set(lengths[:30]), set(lengths[30:]) <= {1, 3}, prepared.header.extra["group_size"]) == ({7}, True, 5)
