"""Learns subwords from counted words, with the libraries of the extra ``mt``.

Only here are they asked for; a byte-pair encoding is applied without them.
"""

import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from structattn.data.tokenization.byte_pairs import MARK, BytePairs
from structattn.data.tokenization.sentencepiece_model import without_path
from structattn.data.tokenization.sentencepiece_tokenizer import SPACE, SentencePieces
from structattn.support.errors import UsageError

_SEPARATOR = "\n"  # the one character that no line holds
_REPEATED = 1000
_ITS_OWN = "▅"  # U+2585: SentencePiece keeps it for itself and skips words that have it
_LONGEST_WORD = 1 << 20  # bytes; SentencePiece would leave out what is longer than 4192


def _needed(name: str) -> ModuleType:
    try:
        return __import__(name)
    except ImportError as error:
        reason = f"{name} is not there ({error}); pip install 'structattn[mt]'"
        raise UsageError(f"subwords are learnt with a library that is optional: {reason}") from None


def learn_byte_pairs(units: Mapping[str, int], merges: int, marker: str = "end") -> BytePairs:
    """Learn merges: start from characters, and join the commonest pair of neighbours, again and again.

    Pairs are counted within units, each weighted by how often it occurs. Among equally common pairs the one with the
    lower numbers is taken: characters are numbered by code point, merged pieces after them in their order.
    Sennrich et al. (2016), algorithm 1; done by the library tokenizers.

    Args:
        units: how often each of ``BytePairs.units`` occurs.
        merges: how many to learn; fewer where no two pieces stand beside each other any more.
        marker: see ``BytePairs``.

    Raises:
        UsageError: the library is not installed.
    """
    tokenizers: Any = _needed("tokenizers")
    counts = _bare(units) if marker == "continuation" else units
    characters = len(set().union(*counts))
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(_SEPARATOR)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=characters + merges, min_frequency=1, show_progress=False)
    learner.train_from_iterator(_repeated(counts), trainer)
    learnt = json.loads(learner.to_str())["model"]["merges"]
    return BytePairs(tuple((left, right) for left, right in learnt), marker)


def _bare(units: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for unit, count in units.items():
        counts[unit.removesuffix(MARK)] += count
    return counts


def _repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Each unit as often as it occurs, in portions: the library has no door for counts."""
    for unit in sorted(counts):
        portions, rest = divmod(counts[unit], _REPEATED)
        portion = (unit + _SEPARATOR) * _REPEATED
        for _ in range(portions):
            yield portion
        if rest:
            yield (unit + _SEPARATOR) * rest


def learn_sentence_pieces(units: Mapping[str, int], size: int, algorithm: str) -> SentencePieces:
    """Learn pieces with SentencePiece (Kudo & Richardson 2018), every character covered, no normalisation.

    Args:
        units: how often each of ``SentencePieces.units`` occurs.
        size: the number of pieces, a soft limit: fewer where the text has no more.
        algorithm: ``bpe`` or ``unigram`` (Kudo 2018).

    Raises:
        UsageError: the library is not installed, or the size is below what the characters alone need.
    """
    library: Any = _needed("sentencepiece")
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder, "words.tsv")
        with words.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{unit}\t{count}\n" for unit, count in sorted(units.items()))
        try:
            library.SentencePieceTrainer.train(
                input=str(words),
                input_format="tsv",
                model_writer=model,
                model_type=algorithm,
                vocab_size=size,
                character_coverage=1.0,
                required_chars="".join(
                    sorted(set().union(*units) - {SPACE, _ITS_OWN})
                ),  # else those of "<unk>" are missing
                normalization_rule_name="identity",
                hard_vocab_limit=False,
                max_sentence_length=_LONGEST_WORD,
                num_threads=1,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                unk_id=0,
                minloglevel=3,
            )
        except (RuntimeError, OSError) as error:
            raise UsageError(f"SentencePiece learns no {size} pieces from this text: {error}") from None
    return SentencePieces(without_path(model.getvalue(), str(words)))
