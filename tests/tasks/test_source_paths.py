"""Headers are UTF-8: a source whose path is not is refused by each command before it works."""

import io
import os
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from structattn.support.errors import DataError
from structattn.tasks.formal_languages.prepare import prepare_formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.recognition.prepare import prepare_recognition
from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere have no such names")
NAME = os.fsdecode(b"caf\xe9")
REFUSED = r"the (path|name) is not UTF-8, so header\.json cannot contain it"
WORDS = TokenizerSettings("word", False)
TREE, GRAMMAR, PAIR = "(S (NN a))\n", "S -> a S | b\n", "my yak slept . PAST\tmy yak slept .\n"


def text(folder, file):
    prepare_language_modeling(folder, file, file)


def parallel(folder, file):
    prepare_parallel(folder, {"train": [file, file], "valid": [file, file]}, tokenizer=WORDS)


def trees(folder, file):
    prepare_trees(folder, {"train": file, "valid": file}, tokenizer=WORDS)


def sentences(folder, file):
    prepare_trees(folder, {"train": file, "valid": file}, tokenizer=WORDS, layout="sentences")


def formal_language(folder, file):
    prepare_formal_language(folder, str(file))


def recognition(folder, file):
    prepare_recognition(folder, str(file))


COMMANDS = [  # the command, a file that it reads, and the work that it does not begin
    (text, "", "a b\n", "language_modeling.prepare.train_tokenizer"),
    (parallel, "", "a b\n", "translation.prepare.train_tokenizers"),
    (trees, "", TREE, "parsing.prepare.read_trees"),
    (sentences, "", TREE, "parsing.prepare.read_trees"),
    (formal_language, ".cfg", GRAMMAR, "formal_languages.prepare._sample_splits"),
    (recognition, ".cfg", GRAMMAR, "recognition.prepare._flare_splits"),
]


@pytest.mark.parametrize(("command", "suffix", "content", "work"), COMMANDS)
@pytest.mark.parametrize("within", [f"{NAME}/a", NAME], ids=["folder", "file"])
def test_a_source_whose_path_is_not_utf_8(tmp_path, monkeypatch, command, suffix, content, work, within):
    file = tmp_path / f"{within}{suffix}"
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    monkeypatch.setattr(f"structattn.tasks.{work}", Mock(side_effect=AssertionError))
    with pytest.raises(DataError, match=REFUSED):
        command(tmp_path / "data", file)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", [formal_language, recognition])
def test_a_language_is_named_as_the_link_to_its_file(tmp_path, command):
    (tmp_path / "a.cfg").write_text(GRAMMAR)
    (tmp_path / f"{NAME}.cfg").symlink_to("a.cfg")
    with pytest.raises(DataError, match=REFUSED):
        command(tmp_path / "data", tmp_path / f"{NAME}.cfg")


def test_published_pairs_and_text_beside_the_folder(tmp_path, monkeypatch):
    (tmp_path / NAME).mkdir()
    for end in ("dev", "test", "gen"):
        (tmp_path / NAME / f"tense.{end}").write_text(PAIR)
    monkeypatch.setattr("structattn.tasks.transformations.prepare._draw", Mock(side_effect=AssertionError))
    with pytest.raises(DataError, match=REFUSED):
        prepare_transformation(tmp_path / "data", "tense", published=tmp_path / NAME)
    with pytest.raises(DataError, match=REFUSED):
        prepare_transformation(tmp_path / NAME / NAME, "tense", layout="parallel")


def test_a_prepared_folder_may_have_any_name(tmp_path, monkeypatch, caplog):
    caplog.set_level("CRITICAL", "structattn")  # a worker of pytest cannot hand on a warning with such a name
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\tb\n")))
    (tmp_path / "valid").write_text("a\tb\n")
    folder = tmp_path / NAME
    prepare_parallel(folder, {"train": ["-"], "valid": [tmp_path / "valid"]}, tokenizer=WORDS)
    assert [each.path for each in open_prepared(folder).header.sources] == ["-", "../valid"]
    sizes = TransformationSizes(5, 1, 1, 1)
    prepare_transformation(folder / "more", "tense", layout="parallel", sizes=sizes)
    assert open_prepared(folder / "more").header.sources[0].path == "../more.text/train.tsv"
