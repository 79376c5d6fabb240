"""Written forms of English sentences: how corpora of running text separate punctuation and contractions."""

import re
from collections.abc import Collection
from dataclasses import dataclass

_MARKS = r"[.,;:?!]"
_SEPARATE_STOP = re.compile(r"(?<!\S)\.(?!\S)")
_ATTACHED_STOP = re.compile(r"(?<=\w)\.(?!\S)")
_SEPARATE_NEGATION = re.compile(r"(?<!\S)n't(?!\S)")


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
    def of_corpus(cls, text: str, symbols: Collection[str], separate_marks: bool | None = None) -> "WrittenForm":
        """Return the form of a corpus.

        Negations are separated if ``n't`` is a word of the text; sentences are converted to lower case if no symbol has
        an upper-case letter.

        Args:
            text: the beginning of the corpus.
            symbols: its vocabulary.
            separate_marks: whether marks are separated; None: if more full stops of the text are words of their own
                than end a word.
        """
        if separate_marks is None:
            separate_marks = len(_SEPARATE_STOP.findall(text)) > len(_ATTACHED_STOP.findall(text))
        lowercase = not any(symbol != symbol.lower() for symbol in symbols)
        return cls(separate_marks, separate_marks and _SEPARATE_NEGATION.search(text) is not None, lowercase)
