"""The second stage: words are whole, none is unknown, and their log p is what the decoder gives."""

import itertools
import math

import pytest
import torch

from structattn.decoding import BeamSearch, Hypothesis, PerToken, WholeWords, beam_search, spellings, with_spellings
from structattn.decoding.stepper import Start
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
    """Of a word among those that may come out, character by character."""
    state, total = model.initial_state(x[None]), 0.0
    for before, after in itertools.pairwise([1, *word, 2]):
        logits, state = model.step(torch.tensor([before]), state)
        logits[0, 1] = -math.inf
        if before == 1:
            logits[0, 0] = -math.inf
        total += logits.log_softmax(-1)[0, after - 2].item()
    return total


@torch.no_grad()
def test_all_words_that_may_come_out_are_found_by_a_wide_beam():
    (model,), xs = decoders(), vectors(3)
    words = [word for length in (1, 2, 3) for word in itertools.product((4, 5), repeat=length)]
    start = Start(model.initial_state(xs), torch.ones(3, dtype=torch.int64))
    found = beam_search(WholeWords(model), start, 4, BeamSearch(40), n_best=14)
    for x, hypotheses in zip(xs, found, strict=True):
        expected = {word: log_p(model, x, word) for word in words}
        finished = {each.text: each.log_probability for each in hypotheses if each.finished}
        assert finished == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("beam", [1, 4])
def test_no_word_is_empty_or_unknown(count, beam):
    xs = vectors(50)
    found = spellings(decoders(count), [xs] * count, beam)
    words = [best[0].text for best in found]
    assert all(words)
    assert {character for word in words for character in word} <= {4, 5}
    assert max(map(len, words)) <= 51


@torch.no_grad()
def test_a_greater_beam_finds_likelier_words():
    (model,), xs = decoders(ends=0.0), vectors(20)
    greedy, wide = (spellings([model], [xs], beam) for beam in (1, 8))
    gains = [after[0].log_probability - before[0].log_probability for before, after in zip(greedy, wide, strict=True)]
    assert max(gains) > 0
    for x, (best,) in zip(xs, wide, strict=True):
        assert best.log_probability == pytest.approx(log_p(model, x, best.text), rel=1e-9)


def test_words_and_characters_are_scored_together():
    hypothesis = Hypothesis((5, 3, 2), -3.0, -1.0)
    found = with_spellings(hypothesis, -6.0, PerToken())
    assert (found.tokens, found.log_probability, found.score) == ((5, 3, 2), -9.0, -3.0)
