"""Data that a sweep prepares: text, with the options of the command."""

from structattn.data.folders import open_prepared
from structattn.settings.prepare import TextData
from structattn.sweeps.data_preparation import prepare_data


def test_text_is_prepared_as_by_the_command(tmp_path):
    (tmp_path / "text").write_text("A b\na c\n" * 30)
    path = str(tmp_path / "text")
    data = TextData(kind="text", train=path, valid=path, mode="stream", lowercase=True, block_length=7)
    prepare_data(tmp_path / "data", data)
    prepared = open_prepared(tmp_path / "data")
    assert (prepared.kind, prepared.vocabulary.symbols[3:]) == ("stream", ("a", "b", "c"))
    assert prepared.split("train").num_targets == 180 // 7 * 7
