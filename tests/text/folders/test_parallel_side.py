"""Sides of parallel text: any line round-trips up to normalization, and saved sides encode as before."""

import re
import unicodedata
from collections import Counter
from itertools import product

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.support.errors import DataError
from structattn.support.special_tokens import UNK
from structattn.tasks.translation.tokenizer_training import TokenizerSettings, train_tokenizers
from structattn.text.folders.parallel import load_sides, save_sides
from structattn.text.lines import Normalization
from structattn.text.tokenization.tokenizers import LEVELS

SETTINGS = [
    *(
        TokenizerSettings("bpe", True, 30, threshold, marker)
        for marker in ("end", "start", "continuation")
        for threshold in (0, 2)
    ),
    *(TokenizerSettings(level) for level in ("word", "character", "byte")),
]
NFKC = Normalization()
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), max_size=40)
SCRIPTS = (
    "größte", "жук", "Ελλάδα", "שלום", "עִבְרִית", "العربية", "हिन्दी", "বাংলা", "தமிழ்",
    "ไทย", "ລາວ", "བོད", "ქართული", "հայերեն", "አማርኛ", "한국어", "日本語", "ｶﾀｶﾅ", "中文", "Tiếng",
    "Việt", "ﬁn", "Å", "e\u0301", "👩\u200d👩\u200d👧", "\u200e", "𝔘", "1½", "²", "…", "\u00a0",
    "\u3000", "\t", " ",
)  # fmt: skip
MIXTURES = st.lists(st.sampled_from(SCRIPTS), max_size=12).map("".join)


def learnt(lines, settings, normalization=NFKC):
    level = LEVELS.get(settings.level, LEVELS["word"])  # subwords are parts of words
    counts = Counter(symbol for line in lines for symbol in level.split(normalization(line)))
    return train_tokenizers(counts, counts, settings, normalization)


def check_that_it_comes_back(line, settings, nfkc):
    side = learnt([line, *SCRIPTS], settings, Normalization(nfkc)).source
    ids = side.encode(line)
    text = (unicodedata.normalize("NFKC", line) if nfkc else line).replace("\t", " ")
    assert settings.level == "byte" or UNK not in ids
    assert side.decode(ids) == re.sub(" +", " ", text).strip(" ")
    assert side.decode(ids) == side.normalization(line)
    assert side.encode(side.decode(ids)) == ids


@pytest.mark.parametrize("examples", [30, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_any_line_is_decoded_to_its_normalized_form(settings, examples):
    if settings.level == "bpe":
        pytest.importorskip("tokenizers", reason="the extra mt is not installed")

    @hypothesis.settings(max_examples=examples)
    @given(LINES | MIXTURES, st.booleans())
    def check(line, nfkc):
        check_that_it_comes_back(line, settings, nfkc)

    check()


@given(LINES | MIXTURES, st.booleans(), st.booleans())
def test_normalization_is_idempotent(line, nfkc, lowercase):
    normalization = Normalization(nfkc, lowercase)
    once = normalization(line)
    assert normalization(once) == once
    assert once == once.strip(" ")
    assert "  " not in once
    assert "\t" not in once


@pytest.mark.parametrize("settings", [*SETTINGS, TokenizerSettings("sentencepiece-unigram", size=200)], ids=str)
@pytest.mark.parametrize("joint", [True, False])
def test_loaded_sides_encode_as_the_saved_ones(tmp_path, settings, joint):
    if "bpe" in settings.level or "piece" in settings.level:
        pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    sides = learnt(SCRIPTS * 2, settings)
    save_sides(sides, tmp_path, joint)
    description = {"level": settings.level, "joint": joint, "nfkc": True, "lowercase": False, **sides.digests()}
    again = load_sides(tmp_path, description)
    assert again.digests() == sides.digests()
    line = " ".join(SCRIPTS)
    for before, after in ((sides.source, again.source), (sides.target, again.target)):
        assert after.encode(line) == before.encode(line)
        assert after.vocabulary == before.vocabulary


def test_different_sides_have_different_digests():
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    all_settings = [*SETTINGS, TokenizerSettings("bpe", size=29), TokenizerSettings("bpe", size=30, marker="none")]
    found = [
        learnt(SCRIPTS, settings, Normalization(*flags)).source.digest
        for settings in all_settings
        for flags in product((True, False), repeat=2)
    ]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("code_point", range(0, 0x30000, 0x10000))
def test_normalization_of_any_character_is_idempotent(code_point):
    characters = [chr(c) for c in range(code_point, code_point + 0x10000) if not 0xD800 <= c < 0xE000]
    for normalization in (Normalization(), Normalization(lowercase=True), Normalization(False, True)):
        once = [normalization(character) for character in characters]
        assert [normalization(character) for character in once] == once


def test_lowercase():
    assert Normalization(lowercase=True)("  ＡÄ\tẞ \u212b ΟΔΟΣ ") == "aä ß å οδος"
    assert Normalization(nfkc=False, lowercase=True)("ﬁ\u00a0Ａ") == "ﬁ\u00a0ａ"


@pytest.mark.parametrize("description", [{}, {"nfkc": True}, {"nfkc": 1, "lowercase": False}])
def test_a_damaged_description_is_rejected(tmp_path, description):
    with pytest.raises(DataError, match="expected true or false"):
        load_sides(tmp_path, {"level": "word", "joint": True, **description})
