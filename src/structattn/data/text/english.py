"""Written forms of English sentences: how corpora of running text separate punctuation and contractions."""

import re
from collections.abc import Collection
from dataclasses import dataclass

_MARKS = r"[.,;:?!]"


@dataclass(frozen=True)
class WrittenForm:
    """Rewrites untokenized English in the form of a corpus; words are separated by single spaces.

    Args:
        separate_marks: write punctuation marks and the ends of contractions as words: ``Bo isn't here.`` becomes
            ``Bo isn 't here .``, the form of WikiText.
        separate_negations: where marks are separated, write ``is n't``, the form of the Penn Treebank.
        lowercase: convert to lower case.
    """

    separate_marks: bool = False
    separate_negations: bool = False
    lowercase: bool = False

    def __call__(self, sentence: str) -> str:
        """Return the sentence in this form."""
        if self.separate_marks:
            contraction = r"n't\b|'\w*" if self.separate_negations else r"'\w*"
            sentence = re.sub(f"({contraction}|{_MARKS})", r" \1 ", sentence)
        if self.lowercase:
            sentence = sentence.lower()
        return " ".join(sentence.split())

    @classmethod
    def of_corpus(cls, level: str, symbols: Collection[str], separate_marks: bool | None = None) -> "WrittenForm":
        """Return the form of the corpus that a vocabulary was made from.

        Negations are separated if ``n't`` is a symbol; text is converted to lower case if no symbol has an upper-case
        letter.

        Args:
            level: of the tokens, such as ``word``.
            symbols: the vocabulary.
            separate_marks: whether marks are separated; None: at level ``word``, if the full stop is a symbol. Other
                vocabularies do not tell.
        """
        if separate_marks is None:
            separate_marks = level == "word" and "." in symbols
        lowercase = not any(symbol != symbol.lower() for symbol in symbols)
        return cls(separate_marks, separate_marks and "n't" in symbols, lowercase)
