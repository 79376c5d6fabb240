"""Damaged files of subwords are named, whether or not the digests were made to fit."""

import hashlib
import json

import pytest

from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.header import read_header
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.text_tokenizer import load_normalization
from structattn.text.tokenization.subword_files import SentencePieceModel
from structattn.text.tokenization.vocabulary import Vocabulary

TEXT = "the lowest of the low\na newer lower tower\nthe widest river\n" * 4


@pytest.fixture(params=["bpe", "sentencepiece-bpe", "sentencepiece-unigram"])
def prepared(request, tmp_path):
    (tmp_path / "text").write_text(TEXT)
    settings = TextSettings(request.param, vocabulary_size=40)
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=settings)
    return tmp_path / "data"


def subwords_of(folder):
    (path,) = folder.glob("subwords.*")
    return path


def forge(folder):
    """Make the digests of the header those of the files as they are."""
    header = json.loads((folder / "header.json").read_text())
    header["files"] = {name: sha256_of_file(folder / name) for name in header["files"]}
    symbols = Vocabulary.load(folder / "vocabulary.txt").symbols
    path = subwords_of(folder)
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        model = hashlib.sha256(
            json.dumps(["bpe", content["marker"], content["merges"], sorted(symbols[4:])]).encode()
        ).hexdigest()
    else:
        model = SentencePieceModel(path.read_bytes(), frozenset(symbols[4:])).digest
    inner = hashlib.sha256(json.dumps([model, symbols]).encode()).hexdigest()
    normalization = load_normalization(folder, header["tokenizer"]).description()
    header["tokenizer"]["digest"] = hashlib.sha256(json.dumps([normalization, inner]).encode()).hexdigest()
    (folder / "header.json").write_text(json.dumps(header))


def test_forging_an_intact_folder_changes_nothing(prepared):
    before, _ = read_header(prepared)
    forge(prepared)
    assert read_header(prepared)[0] == before
    open_prepared(prepared)


@pytest.mark.parametrize("forged", [True, False])
@pytest.mark.parametrize("part", ["half", "fields"])
def test_a_part_of_the_subwords_is_refused_by_the_name_of_its_file(prepared, part, forged):
    path = subwords_of(prepared)
    content = path.read_bytes()
    if path.suffix == ".json":
        tree = json.loads(content)
        tree["merges"] = tree["merges"][: len(tree["merges"]) // 2]
        path.write_bytes(content[: len(content) // 2] if part == "half" else json.dumps(tree).encode())
    else:
        offset, target = 0, len(content) // 2  # each field: a key, a length below 128 and its bytes
        while offset < target:
            offset += 2 + content[offset + 1]
        path.write_bytes(content[: offset if part == "fields" else offset - 1])
    if forged and not (path.suffix == ".json" and part == "half"):
        forge(prepared)
    with pytest.raises(DataError) as refused:
        open_prepared(prepared)
    assert refused.value.path == path


def test_a_changed_vocabulary_is_still_the_vocabulary(prepared):
    path = prepared / "vocabulary.txt"
    *lines, first, last, _ = path.read_text().split("\n")
    path.write_text("\n".join([*lines, last, first, ""]))
    with pytest.raises(DataError, match="changed since it was written") as refused:
        open_prepared(prepared)
    assert refused.value.path == path
