"""Exported tokenizers of lower-cased data lower a final sigma as Python does."""

import unicodedata

import pytest

from structattn.interop.export import tokenizer as export
from structattn.interop.export.tokenizer import make_tokenizer
from structattn.support.errors import UsageError
from structattn.support.special_tokens import BOS
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.lines import Normalization
from structattn.text.tokenization.tokenizers import SymbolTokenizer, split_line
from structattn.text.tokenization.vocabulary import Vocabulary

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed; pip install 'structattn[mt]'")

GREEK = [
    "Ο ΣΙΣΥΦΟΣ ΚΑΙ Ο ΔΡΟΜΟΣ",
    "Ὀδυσσεὺς ὈΔΥΣΣΕΎΣ, Ἀχιλλεύς; ΤΙΣ· Σ. ΣΣ ΣΣΣ",
    "ΑΣ' Σ'ΑΣ ΑΣ’Α ΑΣ.Α ΑΣ.α. (ΑΣ) ΑΣ-ΣΑ ΑΣ1 1Σ1 1Σ",
    "ΑΣ\u0301 Α\u0301Σ ΑΣ\u0301Α Α\u00adΣ ΑΣ\u00adΑ ʰΣ Αʰ'Σ'ʰ 一Σ Σ一 AΣ aΣ ΑΣß İΣ",
]


def lowered(level, lines, nfkc=True):
    """A tokenizer of lower-cased text whose vocabulary is that of lines."""
    normalization = Normalization(nfkc, lowercase=True)
    symbols = [symbol for line in lines for symbol in split_line(level, normalization(line))]
    vocabulary = Vocabulary.from_symbols(dict.fromkeys(symbols), unknown=True)
    return TextTokenizer(SymbolTokenizer(level, vocabulary), normalization)


@pytest.mark.parametrize("nfkc", [True, False])
@pytest.mark.parametrize("level", ["word", "character"])
def test_greek_words_have_the_ids_of_the_run(level, nfkc):
    text = lowered(level, GREEK, nfkc)
    found = tokenizers.Tokenizer.from_str(make_tokenizer(text, (BOS,), ()).to_str())
    for line in [*GREEK, *map(str.upper, GREEK), *map(str.lower, GREEK)]:
        assert found.encode(line).ids == [BOS, *text.encode(line)]
    if level == "word":
        (sisyphus,) = text.encode("ΣΙΣΥΦΟΣ")
        assert found.id_to_token(sisyphus) == "σισυφος"


def test_a_sigma_beside_any_character():
    """Those that only the library's version of Unicode has are left out."""
    text = lowered("word", GREEK, nfkc=False)
    normalizer = make_tokenizer(text, (), ()).normalizer
    for code in range(0x3000):
        each = chr(code)
        if unicodedata.category(each) != "Cn":
            line = f"Α{each}Σ{each}|{each}Σ|ΑΣ{each}|ΑΣ{each}Α|{each}{each}Σ|"
            assert normalizer.normalize_str(line) == text.normalization(line), f"U+{code:04X}"


def test_the_check_of_an_export_sees_upper_case(monkeypatch):
    text = lowered("word", GREEK)
    examples = [text.encode(line) for line in ("Ο ΔΡΟΜΟΣ", "ΚΑΙ")]
    make_tokenizer(text, (), (), examples)
    monkeypatch.setattr(export, "_FINAL_SIGMA", "(?!)")  # never
    with pytest.raises(UsageError, match=r"tokenizer.json would not encode 'Ο ΔΡΟΜΟΣ' like the run does"):
        make_tokenizer(text, (), (), examples)
    make_tokenizer(text, (), (), examples[1:])


def test_upper_case_that_is_another_line_is_not_compared():
    """As of ß, which becomes ss, and of data that are not lower-cased."""
    text = lowered("word", ["straße"])
    assert text.normalization("straße".upper()) != "straße"
    make_tokenizer(text, (), (), [text.encode("straße")])
    cased = TextTokenizer(SymbolTokenizer("word", Vocabulary.from_symbols(["der"])), Normalization())
    found = make_tokenizer(cased, (), (), [cased.encode("der")])
    assert "Lowercase" not in found.to_str()
