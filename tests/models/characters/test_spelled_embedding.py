"""Tokens by their number or by their spelling, and what a translator makes of them."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from structattn.models import BidirectionalComposition, SpelledEmbedding
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.errors import SettingsError

SIZE, CHARACTERS, WIDTH = 8, 7, 4
SPELLINGS = torch.tensor([[1, 4, 2, 0], [1, 5, 2, 0], [1, 4, 5, 2], [1, 6, 2, 0]])  # of the words 4 to 7
RARE = torch.tensor([[1, 6, 6, 6, 4, 2], [1, 4, 5, 2, 0, 0]])
WORDS = VocabularySpec(SIZE, CHARACTERS, lambda: SPELLINGS)


class Counting(nn.Module):
    """A composition that remembers what it was asked for."""

    def __init__(self):
        super().__init__()
        self.composition, self.asked = BidirectionalComposition(CHARACTERS, WIDTH, 3, 5), []

    def forward(self, spellings):
        self.asked.append(spellings.tolist())
        return self.composition(spellings)


def embedding(spelled=SPELLINGS):
    torch.manual_seed(1)
    return SpelledEmbedding(SIZE, WIDTH, Counting(), spelled).double()


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


def test_special_tokens_have_rows_and_words_are_spelled():
    spelled = embedding()
    found = spelled(torch.tensor([[1, 2, 3, 4, 7]]))[0] / math.sqrt(WIDTH)
    assert spelled.table.num_embeddings == 2
    close(found[:3], spelled.table.weight[[0, 0, 1]])  # <bos> takes the row of <eos>
    close(found[3:], spelled.composition.composition(SPELLINGS[[0, 3]]))


def test_rare_words_are_ids_past_the_vocabulary():
    for spelled in (embedding(), embedding(SPELLINGS[:0])):
        found = spelled(torch.tensor([[9, 4], [6, 8]]), oov_spellings=RARE) / math.sqrt(WIDTH)
        close(found[[0, 1], [0, 1]], spelled.composition.composition(RARE[[1, 0]]))
    by_row = embedding(SPELLINGS[:0])
    close(by_row(torch.tensor([[6]]))[0, 0], by_row.table.weight[4] * 2)


@torch.no_grad()
def test_in_evaluation_a_word_is_composed_once_until_the_weights_change():
    spelled = embedding().eval()
    first = spelled(torch.tensor([[4, 7, 1]]))
    close(spelled(torch.tensor([[7, 5, 4]]))[0, [2, 0]], first[0, :2])
    assert spelled.composition.asked == [SPELLINGS[[0, 3], :3].tolist(), SPELLINGS[[1], :3].tolist()]
    composition = spelled.composition.composition
    composition.output.weight.mul_(2)
    close(spelled(torch.tensor([[4]]))[0, 0] / math.sqrt(WIDTH), composition(SPELLINGS[:1])[0])
    composition.load_state_dict(BidirectionalComposition(CHARACTERS, WIDTH, 3, 5).state_dict())
    close(spelled(torch.tensor([[4]]))[0, 0] / math.sqrt(WIDTH), composition(SPELLINGS[:1])[0])
    assert copy.deepcopy(spelled)._cache is None
    assert spelled.float()(torch.tensor([[4]])).dtype == torch.float32


def test_words_are_composed_under_inference_mode_and_autocast():
    spelled, tokens = embedding().float().eval(), torch.tensor([[4, 5]])
    with torch.inference_mode():
        expected = spelled(tokens).clone()
    with torch.no_grad():
        close(spelled(tokens), expected)
        with torch.autocast("cpu", torch.bfloat16):
            rough = spelled(tokens)
        close(spelled(tokens), expected)
    assert not torch.equal(rough, expected)


@pytest.mark.parametrize("other", ["with gradients", "autocast"])
@torch.no_grad()
def test_calls_of_other_threads_while_a_word_is_composed_do_not_matter(other):
    spelled, tokens, busy = embedding().float().eval(), torch.arange(4, 8)[None], []

    def call(model):
        with torch.set_grad_enabled(other == "with gradients"), torch.autocast("cpu", enabled=other == "autocast"):
            return model(tokens)

    def call_within(*_):
        if not busy:
            busy.append(True)
            thread.submit(call, spelled).result()

    expected, expected_of_other = copy.deepcopy(spelled)(tokens), call(copy.deepcopy(spelled))

    with ThreadPoolExecutor(1) as thread:
        spelled.composition.register_forward_pre_hook(call_within)
        for _ in range(2):
            assert torch.equal(spelled(tokens), expected)
            assert torch.equal(call(spelled), expected_of_other)


def test_a_rare_word_spelled_like_a_common_one_has_its_vector():
    found = embedding()(torch.tensor([[6, 9]]), oov_spellings=RARE)
    close(found[0, 0], found[0, 1])


def test_each_different_word_is_composed_once():
    spelled = embedding()
    spelled(torch.tensor([[4, 4, 6, 8], [6, 4, 1, 8]]), oov_spellings=RARE)
    assert spelled.composition.asked == [[[1, 4, 2, 0, 0, 0], [1, 4, 5, 2, 0, 0], [1, 6, 6, 6, 4, 2]]]
    spelled(torch.tensor([[4, 5, 4]]))
    assert spelled.composition.asked[1] == [[1, 4, 2], [1, 5, 2]], "no longer than the longest that is there"


def test_checkpoints_hold_no_spellings():
    assert not any("spellings" in name for name in embedding().state_dict())


SIZES = {"d_model": 8, "d_ff": 12, "num_heads": 2}
KINDS = {
    "c2w": {"encoder": {"layers": 1, "embedding": "c2w"}, "decoder": {"layers": 1, "embedding": "c2w"}},
    "coupled": {"encoder": {"layers": 1, "embedding": {"kind": "c2w", "coupled": True}}, "decoder": {"layers": 1}},
    "hybrid": {
        "encoder": {"layers": 1, "embedding": {"kind": "character_lstm", "words": "rare"}},
        "decoder": {"layers": 1, "spelling": {"num_layers": 2}},
        "tied_embeddings": "two-way",
    },
}


def translator(kind, **changes):
    torch.manual_seed(3)
    settings = EncoderDecoderSettings(kind="encoder_decoder", **(SIZES | KINDS[kind] | changes))
    return build_encoder_decoder(settings, WORDS, WORDS).double().eval()


SOURCE, LENGTHS = torch.tensor([[4, 8, 9, 2], [6, 2, 0, 0]]), torch.tensor([4, 2])
TARGET = torch.tensor([[1, 3, 4, 7, 3], [1, 5, 5, 6, 4]])


@pytest.mark.parametrize("kind", KINDS)
def test_spellings_matter_to_the_texts_that_hold_them(kind):
    model = translator(kind)
    together = model(SOURCE, TARGET, LENGTHS, oov_spellings=RARE)
    other = model(SOURCE, TARGET, LENGTHS, oov_spellings=RARE.flip(0))
    assert not torch.allclose(other[0], together[0])
    close(other[1], together[1])


def test_every_parameter_learns_even_where_no_word_is_rare():
    for source in (SOURCE, SOURCE.clamp(max=7)):
        model = translator("hybrid")
        unknown = torch.zeros(TARGET.shape, dtype=torch.bool)
        x = model.hidden_states(source, TARGET, LENGTHS, oov_spellings=RARE)
        logits, characters = model.logits(x), model.spelling(x[unknown], RARE[:0, :-1])
        assert characters.shape == (0, 5, CHARACTERS - 2)
        (logits.sum() + characters.sum()).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"tied_embeddings": "three-way", "encoder": {"embedding": "c2w"}},
            "three-way needs table embeddings; got c2w",
        ),
        ({"tied_embeddings": "two-way", "decoder": {"embedding": "c2w"}}, "two-way needs table embeddings; got c2w"),
        ({"decoder": {"embedding": {"kind": "c2w", "words": "rare"}}}, "words: rare is for the source"),
        ({"encoder": {"embedding": "c3w"}}, "'c3w'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        EncoderDecoderSettings(kind="encoder_decoder", **(SIZES | settings))


def test_data_that_do_not_say_how_words_are_spelled_are_refused():
    for kind, place in (("c2w", r"decoder\.embedding"), ("coupled", r"encoder\.embedding"), ("hybrid", "encoder")):
        settings = EncoderDecoderSettings(kind="encoder_decoder", **(SIZES | KINDS[kind]))
        with pytest.raises(SettingsError, match=rf"model\.{place}.*the data have no characters of words"):
            build_encoder_decoder(settings, VocabularySpec(SIZE), VocabularySpec(SIZE))
    same = {"decoder": {"layers": 1, "spelling": {"path": "same", "hidden_size": 9}}}
    with pytest.raises(SettingsError, match="hidden_size is 9; expected d_model 8 with path: same"):
        translator("hybrid", **same)
