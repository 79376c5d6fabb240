"""WikiText-2 has its published numbers of tokens."""

from pathlib import Path

import pytest

from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import PreparedFolder, open_prepared, verify_sources

WIKITEXT = Path(__file__).resolve().parents[4] / "shared/data/wikitext-2"
pytestmark = pytest.mark.skipif(not WIKITEXT.is_dir(), reason="../shared/data/wikitext-2 is not there")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> PreparedFolder:
    folder = tmp_path_factory.mktemp("wikitext") / "folder"
    texts = [WIKITEXT / f"{split}.txt" for split in ("train", "valid", "test")]
    (notice,) = prepare_language_modeling(folder, *texts, TextSettings(mode="stream"))
    assert "5.5% of valid, 6.3% of test are <unk>" in notice  # which the published text contains
    return open_prepared(folder)


def test_published_counts(prepared):
    counts = {split: prepared.split(split).num_targets for split in prepared.splits}
    assert counts == {"train": 2_088_628, "valid": 217_646, "test": 245_569}
    assert prepared.vocabulary.size - 2 == 33_278  # <pad> and <bos> are not types of the text
    assert verify_sources(prepared) == ()


def test_text_round_trips(prepared):
    words = [line.split() for line in (WIKITEXT / "valid.txt").read_text(encoding="utf-8").split("\n")[:-1]]
    sequences, decode = prepared.split("valid"), prepared.tokenizer.decode
    assert [decode(sequences[index]) for index in range(len(sequences))] == [" ".join(line) for line in words]


def test_empty_paragraphs_are_dropped_as_sentences(tmp_path):
    texts = [WIKITEXT / f"{split}.txt" for split in ("valid", "valid", "test")]
    notices = prepare_language_modeling(tmp_path / "folder", *texts, TextSettings(skip_empty=True))
    splits = open_prepared(tmp_path / "folder").header.splits
    assert (splits["valid"].sequences, splits["test"].sequences) == (2461, 2891)
    assert "1299 empty lines" in notices[0]
