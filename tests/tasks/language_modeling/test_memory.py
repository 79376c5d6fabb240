"""Memory of preparation: a text of one line takes a bounded number of bytes for each of its bytes."""

import tracemalloc

import numpy as np
import pytest

from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared

SIZE = 3_000_000


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """One line of words of 1 to 3 letters, without its line feed."""
    path, generator = tmp_path_factory.mktemp("text") / "line", np.random.default_rng(1)
    letters = generator.integers(ord("a"), ord("e"), SIZE, dtype=np.uint8)
    letters[np.cumsum(generator.integers(2, 5, SIZE // 4))] = ord(" ")
    path.write_bytes(letters.tobytes())
    return path


@pytest.mark.parametrize("level", ["word", "character", "byte"])
def test_one_line_of_many_megabytes_takes_few_bytes_a_byte(tmp_path, text, level):
    (tmp_path / "valid").write_text("ab cd\n")
    settings = TextSettings(level, "stream", vocabulary_size=60)
    tracemalloc.start()
    try:
        prepare_language_modeling(tmp_path / "data", text, tmp_path / "valid", settings=settings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * SIZE + 20_000_000, f"{peak / SIZE:.1f} bytes for each byte"
    train = open_prepared(tmp_path / "data").split("train")
    assert len(train) == 1
    assert (
        open_prepared(tmp_path / "data").tokenizer.decode(train[0][:2000])
        == text.read_text()[:20000][: len(open_prepared(tmp_path / "data").tokenizer.decode(train[0][:2000]))]
    )
