"""Likely translations of tokens: EM as in its definition, in parts, and on text with a known lexicon."""

from collections import defaultdict

import numpy as np
import pytest

from structattn.tasks.translation import word_translations
from structattn.tasks.translation.word_translations import likeliest_translations
from structattn.text.folders.pairs import Pairs
from structattn.text.folders.sequences import Sequences


def sequences(lists):
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return Sequences(np.array([token for each in lists for token in each], dtype=np.int32), offsets)


def pairs_of(texts):
    return Pairs(*map(sequences, zip(*texts, strict=True)), np.arange(len(texts)))


def random_pairs(count, seed=0):
    """Return sentences of ids from 3 to 7, and translations: 13 to 17 in another order, and always 12."""
    generator = np.random.default_rng(seed)
    sources = [generator.integers(3, 8, generator.integers(1, 6)).tolist() for _ in range(count)]
    return [(source, [12, *generator.permutation(np.array(source) + 10).tolist()]) for source in sources]


def expected_counts(texts, iterations):
    """The definition: dictionaries, one token after another; source 0 stands for no source token."""
    translation, counts = defaultdict(lambda: 1.0), {}
    for _ in range(iterations):
        counts = defaultdict(float)
        for source, target in texts:
            for e in target:
                total = sum(translation[f, e] for f in (0, *source))
                for f in (0, *source):
                    counts[f, e] += translation[f, e] / total
        totals = defaultdict(float)
        for (f, _), count in counts.items():
            totals[f] += count
        translation.update({(f, e): count / totals[f] for (f, e), count in counts.items()})
    return counts


def test_translations_are_in_the_order_of_the_expected_alignments():
    texts = [([3, 4], [13, 14]), ([3], [13]), ([4, 5, 5], [15, 14]), ([6], [12])]
    found = likeliest_translations(pairs_of(texts), 8, 18, 5)
    counts = expected_counts(texts, 5)
    for f in range(3, 8):
        order = sorted((e for g, e in counts if g == f), key=lambda e: (-round(counts[f, e], 9), e))
        assert [e for e in found[f].tolist() if e >= 0] == order[:5]


def test_the_lexicon_is_found():
    found = likeliest_translations(pairs_of(random_pairs(200)), 8, 18, 1)
    assert found[3:, 0].tolist() == [13, 14, 15, 16, 17]
    assert (found[:3] == -1).all(), "special tokens have no translations"


def test_parts_add_their_alignments(monkeypatch):
    pairs, advanced = pairs_of(random_pairs(60)), []
    monkeypatch.setattr(word_translations, "_LINKS_AT_ONCE", 200)
    found = likeliest_translations(pairs, 8, 18, 1, advanced.append)
    assert found[3:, 0].tolist() == [13, 14, 15, 16, 17]
    assert len(advanced) > 3
    assert sum(advanced) == 60


@pytest.mark.parametrize("texts", [[([3, 4], [])], [([], [12])], [([3], [13]), ([], []), ([4], [14])]])
def test_empty_sentences(texts):
    found = likeliest_translations(pairs_of(texts), 8, 18, 2)
    assert found.shape == (8, 2)
    assert found[4, 0] in (-1, 14)
