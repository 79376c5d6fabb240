"""Tokenizers of Hugging Face folders: their ids by name of token, their special tokens as ours."""

import json

import numpy as np
import pytest
from tests.program import invoke

from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.tokenization.pretrained_tokenizer import read_pretrained_tokenizer
from structattn.text.tokenization.tokenizers import TextError

tokenizers = pytest.importorskip("tokenizers", reason="the extra mt is not installed")

LINES = ["newer lowest  größte", "", " 漢字 é\tnewest", "low low lower."]
GPT2 = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|endoftext|>"}, "unk_token": "<|endoftext|>"}
ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>"}


@pytest.fixture
def folder(tmp_path):
    """A byte-level BPE, as that of GPT-2 and RoBERTa, with special tokens of the names and the order of either."""

    def make(special, name="model"):
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = tokenizers.decoders.ByteLevel()
        tokens = list(dict.fromkeys(each if isinstance(each, str) else each["content"] for each in special.values()))
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=300, special_tokens=tokens, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False)  # fmt: skip
        inner.train_from_iterator(["newer lowest newest low lower"] * 3, trainer)
        (tmp_path / name).mkdir()
        inner.save(str(tmp_path / name / "tokenizer.json"))
        (tmp_path / name / "special_tokens_map.json").write_text(json.dumps(special))
        return tmp_path / name, inner

    return make


@pytest.mark.parametrize("special", [GPT2, ROBERTA])
def test_tokens_are_theirs_by_name(folder, special):
    path, theirs = folder(special)
    tokenizer = read_pretrained_tokenizer(path)
    for line in LINES:
        ids = tokenizer.encode(line)
        assert tokenizer.vocabulary.symbols_of(ids) == theirs.encode(line, add_special_tokens=False).tokens
        assert tokenizer.decode(ids) == line
    encoded = tokenizer.encode_lines(LINES)
    assert encoded.tokens.tolist() == [token for line in LINES for token in tokenizer.encode(line)]
    np.testing.assert_array_equal(encoded.lengths, [len(tokenizer.encode(line)) for line in LINES])


def test_special_tokens_are_ours_and_the_others_follow_in_order(folder):
    path, theirs = folder(ROBERTA)
    symbols = read_pretrained_tokenizer(path).vocabulary.symbols
    assert symbols[:4] == ("<pad>", "<bos>", "<eos>", "<unk>")
    others = sorted(theirs.get_vocab().items(), key=lambda item: item[1])
    assert symbols[4:] == tuple(token for token, _ in others if token not in {"<s>", "</s>", "<pad>", "<unk>"})
    assert read_pretrained_tokenizer(path).encode("low <unk>")[-1] == 3


@pytest.mark.parametrize(("special", "token"), [(GPT2, "<|endoftext|>"), (ROBERTA, "</s>")])
def test_names_of_special_tokens_are_refused_in_text(folder, tmp_path, special, token):
    path, _ = folder(special)
    with pytest.raises(TextError, match="is a special token") as caught:
        read_pretrained_tokenizer(path).encode(f"é {token}")
    assert caught.value.column == 4
    (tmp_path / "text").write_text(f"low\nä {token} b\n")
    settings = TextSettings("pretrained", tokenizer=str(path))
    with pytest.raises(DataError, match="is a special token") as refused:
        prepare_language_modeling(tmp_path / "data", *[tmp_path / "text"] * 2, settings=settings)
    assert (refused.value.line, refused.value.column) == (2, 4)


@pytest.mark.parametrize("mode", ["sentences", "stream"])
def test_a_prepared_folder_has_the_tokenizer(folder, tmp_path, mode):
    path, _ = folder(ROBERTA)
    (tmp_path / "text").write_text("".join(line + "\n" for line in LINES))
    settings = TextSettings("pretrained", mode, skip_empty=True, tokenizer=str(path))
    prepare_language_modeling(tmp_path / "data", *[tmp_path / "text"] * 2, settings=settings)
    prepared, expected = open_prepared(tmp_path / "data"), read_pretrained_tokenizer(path)
    assert prepared.vocabulary == expected.vocabulary
    assert prepared.header.tokenizer["special_tokens"]["<bos>"] == "<s>"
    kept = [line for line in LINES if line or mode == "stream"]
    split = prepared.split("train")
    assert [prepared.tokenizer.decode(split[index]) for index in range(len(split))] == kept
    (tmp_path / "data" / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer"):
        open_prepared(tmp_path / "data")


@pytest.mark.parametrize("skip_empty", [True, False])
def test_a_line_of_which_a_tokenizer_leaves_nothing_is_refused(tmp_path, skip_empty):
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "low": 1}, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.BertNormalizer()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    (tmp_path / "model").mkdir()
    inner.save(str(tmp_path / "model/tokenizer.json"))
    (tmp_path / "model/special_tokens_map.json").write_text(json.dumps({"unk_token": "[UNK]"}))
    (tmp_path / "text").write_text("low low\n\u200b\nlow\n", encoding="utf-8")
    settings = TextSettings("pretrained", tokenizer=str(tmp_path / "model"), skip_empty=skip_empty)
    with pytest.raises(DataError, match=r"text:2:1: the tokenizer leaves nothing of this line"):
        prepare_language_modeling(tmp_path / "out", tmp_path / "text", tmp_path / "text", settings=settings)
    assert not (tmp_path / "out").exists()


def test_folders_that_are_no_tokenizers_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match=r"tokenizer\.json: cannot be read"):
        read_pretrained_tokenizer(tmp_path)
    path, _ = folder({"eos_token": "</s>"})
    (path / "special_tokens_map.json").write_text('{"eos_token": "<end>"}')
    with pytest.raises(DataError, match="is the token '<end>', which it does not have"):
        read_pretrained_tokenizer(path)
    (path / "special_tokens_map.json").write_text("[]")
    with pytest.raises(DataError, match="expected a JSON object"):
        read_pretrained_tokenizer(path)


def test_level_and_tokenizer_go_together():
    with pytest.raises(UsageError, match="expected both or neither"):
        TextSettings("bpe", tokenizer="model")
    with pytest.raises(UsageError, match="expected both or neither"):
        TextSettings("pretrained")


def write_tokenizer(folder, pattern=None, special=None, **model):
    """A tokenizer of the words a and b."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, **(special or {})}, **model))
    split = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.pre_tokenizer = split
    if pattern is not None:
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    folder.mkdir()
    inner.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_a_regular_expression_that_backtracks_without_end_is_one_line(tmp_path, capfd, workers):
    folder = write_tokenizer(tmp_path / "endless", r"(a+a+)+c", {"<unk>": 2}, unk_token="<unk>")
    (tmp_path / "text").write_text("a\n" + "a" * 60 + "b\n")
    arguments = ["prepare", "text", *(f"--{split}={tmp_path / 'text'}" for split in ("train", "valid"))]
    arguments += [f"--tokenizer={folder}", f"--workers={workers}", f"--output={tmp_path / 'data'}"]
    result = invoke(*arguments)
    assert result.exit_code == 1
    expected = f"{tmp_path / 'text'}:2:1: the tokenizer {folder / 'tokenizer.json'} cannot encode it: Onig: "
    assert result.stderr.splitlines()[-1].startswith(f"structattn: {expected}")
    assert "panicked" not in capfd.readouterr().err
    with pytest.raises(TextError, match=r"cannot encode it: Onig: .*retry-limit-in-match over"):
        read_pretrained_tokenizer(folder).encode("a" * 60 + "b")
    assert "panicked" not in capfd.readouterr().err


def test_words_outside_a_tokenizer_without_unknown_token_are_refused(tmp_path):
    folder = write_tokenizer(tmp_path / "known")
    tokenizer = read_pretrained_tokenizer(folder)
    assert tokenizer.encode("a b") == tokenizer.encode_lines(["a b"]).tokens.tolist()
    assert tokenizer.encode_lines(["a", "a c"]) is None
    with pytest.raises(TextError, match=f"has a word that {folder / 'tokenizer.json'} does not know, which has no unk"):
        tokenizer.encode("a c")
