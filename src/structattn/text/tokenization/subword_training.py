"""Training of subwords: symbols are counted in bounded memory, then merged."""

import io
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from structattn.support.errors import UsageError
from structattn.support.imports import import_library
from structattn.support.shapes import Int64
from structattn.text.reading import Notices
from structattn.text.tokenization.byte_pair_encoding import MARK, BytePairEncoding
from structattn.text.tokenization.subword_files import RESERVED_CHARACTER, SPACE, SentencePieceModel
from structattn.text.tokenization.subword_tokenizer import SubwordModel, SubwordTokenizer

DEFAULT_CAPACITY: Final = 4_000_000


class SymbolCounts:
    """Counts of the symbols of a text, approximate beyond a capacity.

    When more than ``capacity`` distinct symbols are held after an addition, the rarest are evicted until half of the
    capacity is left (see Manku & Motwani 2002 for the error), so memory does not grow with the text. Their characters
    are kept, with a count of 0 if they are not counted themselves.

    Args:
        capacity: the maximum number of distinct symbols; None for exact counts.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._index_of: dict[str, int] = {}
        self._counts: Int64[np.ndarray, " symbols"] = np.zeros(0, np.int64)
        self.num_evicted = 0
        self.clear()

    def add(self, symbols: Sequence[str], counts: NDArray[np.integer]) -> None:
        """Add the counts of distinct symbols."""
        indices = np.fromiter(map(self._index_of.__getitem__, symbols), np.int64, len(symbols))
        missing = len(self._index_of) - len(self._counts)
        if missing > 0:  # space for as many again, so that adding takes linear time
            self._counts = np.concatenate((self._counts, np.zeros(missing + len(self._index_of), np.int64)))
        self._counts[indices] += counts
        if self._capacity is not None and len(self._index_of) > self._capacity:
            self._evict(self._capacity // 2)

    def symbols(self) -> Iterable[str]:
        """Return the distinct symbols in the order in which they were added."""
        return self._index_of.keys()

    def as_dict(self) -> dict[str, int]:
        """Return the count of each symbol."""
        return dict(zip(self._index_of, self._counts.tolist(), strict=False))

    def pop(self) -> dict[str, int]:
        """Return the count of each symbol and forget everything."""
        counts = self.as_dict()
        self.clear()
        return counts

    def clear(self) -> None:
        """Forget everything."""
        self._start({}, np.zeros(0, np.int64))

    def _start(self, index_of: dict[str, int], counts: Int64[np.ndarray, " symbols"]) -> None:
        numbers = itertools.count(len(index_of))
        self._index_of = defaultdict(numbers.__next__, index_of)  # a new symbol gets the next index
        self._counts = counts

    def _evict(self, num_kept: int) -> None:
        counts = self.as_dict()
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        rare = [symbol for symbol in ranked[num_kept:] if len(symbol) > 1]
        self.num_evicted += len(rare)
        for symbol in rare:
            del counts[symbol]
        for character in {character for symbol in rare for character in symbol}:
            counts.setdefault(character, 0)
        self._start({symbol: index for index, symbol in enumerate(counts)}, np.array(list(counts.values()), np.int64))


_SENTENCEPIECE = "sentencepiece-"
_PURPOSE = "training subwords"
_SEPARATOR = "\n"  # the one character that no line contains
_REPETITIONS = 1000
_MAX_WORD_BYTES = 1 << 20  # SentencePiece's default would skip words of more than 4192 bytes


def train_bpe(pretokens: Mapping[str, int], num_merges: int, marker: str = "end") -> BytePairEncoding:
    """Train a byte-pair encoding: start from characters and repeatedly merge the most frequent adjacent pair.

    Pairs are counted within pre-tokens, weighted by their counts. Ties go to the pair with the lower ids; characters
    have ids by code point, merged pieces follow in their order. Sennrich et al. (2016), algorithm 1; computed by the
    library tokenizers.

    Args:
        pretokens: the counts of ``BytePairEncoding.pretokenize`` on the training text; 0 where its words did not fit
            into memory.
        num_merges: the number of merges; fewer are learned if no adjacent pieces are left.
        marker: see ``BytePairEncoding``.

    Raises:
        UsageError: the library is not installed.
    """
    tokenizers = import_library("tokenizers", "mt", _PURPOSE)
    counts = _without_marks(pretokens) if marker == "continuation" else pretokens
    num_characters = len(set().union(*(pretoken for pretoken, count in counts.items() if count)))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(_SEPARATOR)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=num_characters + num_merges, min_frequency=1, show_progress=False
    )
    tokenizer.train_from_iterator(_repeated(counts), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return BytePairEncoding(tuple((left, right) for left, right in merges), marker)


def train_subword_model(level: str, pretokens: Mapping[str, int], size: int, marker: str = "end") -> SubwordModel:
    """Train the subword model of a level.

    Raises:
        UsageError: see ``train_bpe`` and ``train_sentencepiece``.
    """
    if level == "bpe":
        return train_bpe(pretokens, size, marker)
    return train_sentencepiece(pretokens, size, level.removeprefix(_SENTENCEPIECE))


_WORDS_FOR_EACH_SUBWORD: Final = 100
_MOST_SUBWORDS: Final = 32_000
_FIRST_PIECES: Final = 2  # of SentencePiece: <unk> and the space


def number_of_subwords(level: str, words: Mapping[str, int], texts: int = 1) -> int:
    """Return the number of subwords to learn for a text: few examples teach a model little of a token.

    Args:
        level: of subwords.
        words: the count of each word in all texts.
        texts: the number of texts, each of which gets a model of this size.
    """
    merges = min(_MOST_SUBWORDS, sum(words.values()) // texts // _WORDS_FOR_EACH_SUBWORD)
    return max(1, merges) if level == "bpe" else merges + len(set().union(*words)) + _FIRST_PIECES


def report_words_seen_once(
    words: Mapping[str, int], tokenizer: SubwordTokenizer, notices: Notices, side: str = ""
) -> None:
    """Add a notice if most of the tokens that occur in a training text are whole words that occur once there."""
    used, once = set[int](), 0
    for count, ids in zip(words.values(), tokenizer.encode_words(list(words)), strict=True):
        used.update(ids)
        once += count == len(ids) == 1
    if 2 * once > len(used):
        advice = "a smaller vocabulary_size (--vocabulary-size) makes them of parts"
        tokens = " ".join(filter(None, (f"{len(used):,}", side, "tokens")))
        stated = f"{once:,} of the {tokens} of train are whole words that occur once in it"
        notices.add(f"{stated}, of which a model learns little; {advice}")


def pretokenizer(level: str, marker: str = "end") -> Callable[[str], list[str]]:
    """Return the function that splits a normalized line into the pre-tokens of a level of subwords."""
    return BytePairEncoding((), marker).pretokenize if level == "bpe" else SentencePieceModel(b"").pretokenize


def pretoken_counts(words: Mapping[str, int], pretokenize: Callable[[str], list[str]]) -> Counter[str]:
    """Count pre-tokens, given the counts of the words that they are parts of."""
    pretokens = Counter[str]()
    for word, count in words.items():
        for pretoken in pretokenize(word):
            pretokens[pretoken] += count
    return pretokens


def _without_marks(pretokens: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for pretoken, count in pretokens.items():
        counts[pretoken.removesuffix(MARK)] += count
    return counts


def _repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield each pre-token as often as it occurs, in chunks: the library does not accept counts."""
    for pretoken in sorted(counts):
        chunks, rest = divmod(counts[pretoken], _REPETITIONS)
        chunk = (pretoken + _SEPARATOR) * _REPETITIONS
        for _ in range(chunks):
            yield chunk
        if rest:
            yield (pretoken + _SEPARATOR) * rest


def train_sentencepiece(pretokens: Mapping[str, int], size: int, algorithm: str) -> SentencePieceModel:
    """Train a SentencePiece model (Kudo & Richardson 2018) that covers every character, without normalization.

    Args:
        pretokens: the counts of ``SentencePieceModel.pretokenize`` on the training text; 0 of characters that are to be
            pieces, though their words did not fit into memory.
        size: the number of pieces, a soft limit: fewer if the text has no more.
        algorithm: ``bpe`` or ``unigram`` (Kudo 2018).

    Raises:
        UsageError: the library is not installed, or the size is too small for the characters alone.
    """
    sentencepiece = import_library("sentencepiece", "mt", _PURPOSE)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{pretoken}\t{count}" for pretoken, count in sorted(pretokens.items()) if count),
            input_format="tsv",
            model_writer=model,
            model_type=algorithm,
            vocab_size=size,
            character_coverage=1.0,
            required_chars=_required_characters(pretokens),
            normalization_rule_name="identity",
            hard_vocab_limit=False,
            max_sentence_length=_MAX_WORD_BYTES,
            num_threads=1,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            unk_id=0,
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        raise UsageError(f"SentencePiece cannot learn {size} pieces from this text: {error}") from None
    return SentencePieceModel(model.getvalue())


def _required_characters(pretokens: Mapping[str, int]) -> str:
    """Return all characters; without this option SentencePiece omits those of the word ``<unk>``."""
    return "".join(sorted(set().union(*pretokens) - {SPACE, RESERVED_CHARACTER}))
