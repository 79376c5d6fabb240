"""Spelling of <unk>: no empty or unknown words, and log-probabilities that match the decoder step by step."""

import itertools

import pytest
import torch

from structattn.decoding import (
    BeamSearch,
    Hypothesis,
    PerTokenPenalty,
    add_spelling_score,
    beam_search,
    search_spellings,
)
from structattn.decoding.spelling import MAX_CHARACTERS, forbidden_characters
from structattn.decoding.stepper import DecodingStart
from structattn.models import SpellingDecoder

CHARACTERS, WIDTH = 6, 5  # <pad>, <bos>, <eos>, <unk>, and two characters


def decoders(count=1, ends=4.0):
    torch.manual_seed(1)
    found = [SpellingDecoder(CHARACTERS, WIDTH, 3, 4).double().eval() for _ in range(count)]
    for model in found:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        torch.nn.init.constant_(model.output.bias[:2], ends)  # <eos> and <unk>
    return found


def vectors(count):
    return torch.randn(count, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def log_p(model, x, word):
    """Return log p of a word, character by character."""
    state, total = model.initial_state(x[None]), 0.0
    for before, after in itertools.pairwise([1, *word, 2]):
        logits, state = model.step(torch.tensor([before]), state)
        total += logits.log_softmax(-1)[0, after - 2].item()
    return total


@torch.no_grad()
def test_a_wide_beam_finds_all_allowed_words():
    (model,), xs = decoders(), vectors(3)
    words = [word for length in (1, 2, 3) for word in itertools.product((4, 5), repeat=length)]
    start = DecodingStart(model.initial_state(xs), torch.ones(3, dtype=torch.int64))
    found = beam_search(model, start, 4, BeamSearch(40), n_best=14, forbid=forbidden_characters)
    for x, hypotheses in zip(xs, found, strict=True):
        expected = {word: log_p(model, x, word) for word in words}
        finished = {each.text: each.log_probability for each in hypotheses if each.finished}
        assert finished == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("beam", [1, 4])
def test_no_word_is_empty_or_contains_unknown_characters(count, beam):
    xs = vectors(50)
    found = search_spellings(decoders(count), [xs] * count, beam)
    words = [best[0].text for best in found]
    assert all(words)
    assert {character for word in words for character in word} <= {4, 5}
    assert max(map(len, words)) <= MAX_CHARACTERS
    assert all(best.finished for best, *_ in found)


@torch.no_grad()
def test_a_larger_beam_finds_more_probable_words():
    (model,), xs = decoders(ends=0.0), vectors(20)
    narrow, wide = (search_spellings([model], [xs], beam) for beam in (1, 8))
    gains = [after[0].log_probability - before[0].log_probability for before, after in zip(narrow, wide, strict=True)]
    assert max(gains) > 0
    for x, (best,) in zip(xs, wide, strict=True):
        assert best.log_probability == pytest.approx(log_p(model, x, best.text), rel=1e-9)


def test_words_and_characters_are_scored_together():
    hypothesis = Hypothesis((5, 3, 2), -3.0, -1.0)
    found = add_spelling_score(hypothesis, -6.0, PerTokenPenalty())
    assert (found.tokens, found.log_probability, found.score) == ((5, 3, 2), -9.0, -3.0)
