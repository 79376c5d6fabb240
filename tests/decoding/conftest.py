"""Small random models of every mechanism, and scripted models."""

from dataclasses import dataclass

import pytest
import torch

from structattn.decoding import DecodingStart
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.transformer import EncoderDecoderSettings, TwoStreamEncoderDecoderSettings

SIZES = {"d_model": 8, "d_ff": 12, "num_heads": 2, "init_scale": 1.0}
DECODERS = {
    "softmax": {"layers": "1"},
    "superposition": {"layers": "superposition-3"},
    "nondeterministic": {"layers": "nondeterministic-1-2-3"},
    "stack_pointer": {"layers": "stack_pointer"},
    "hard": {"layers": "hard", "cross_attention": "hard"},
    "gaussian": {"layers": "gaussian.gaussian", "cross_attention": "none.softmax-1"},
    "gaussian_across": {"layers": "1", "cross_attention": "gaussian"},
    "two_stream": None,
}
MECHANISMS = tuple(DECODERS)


@pytest.fixture
def translator():
    def build(mechanism, symbols=3, seed=0):
        torch.manual_seed(seed)
        if mechanism == "two_stream":
            settings = TwoStreamEncoderDecoderSettings(kind="two_stream_encoder_decoder", num_layers=1, **SIZES)
        else:
            parts = {"encoder": {"layers": "1"}, "decoder": DECODERS[mechanism]}
            settings = EncoderDecoderSettings.model_validate({"kind": "encoder_decoder"} | SIZES | parts)
        model = build_encoder_decoder(settings, VocabularySpec(9), VocabularySpec(3 + symbols)).double().eval()
        model.output.weight.data *= 3  # otherwise sources would hardly matter
        model.output.bias.data[0] += 1  # otherwise few texts would end
        return model

    return build


@pytest.fixture
def sources():
    def draw(count, longest=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
        return [[*torch.randint(3, 9, (length - 1,), generator=generator).tolist(), 2] for length in lengths]

    return draw


@dataclass(frozen=True)
class WrittenState:
    sentences: torch.Tensor
    steps: int
    owner: "Written"

    def select(self, indices):
        self.owner.selected += 1
        return WrittenState(self.sentences[indices], self.steps, self.owner)


class Written:
    """A model whose logits are ``logits_of(sentence, step, token)``; it records the batch sizes of its steps."""

    def __init__(self, logits_of):
        self.logits_of, self.selected, self.rows = logits_of, 0, []

    def start(self, batch=1):
        return DecodingStart(WrittenState(torch.arange(batch), 0, self), torch.ones(batch, dtype=torch.int64))

    def step(self, tokens, state):
        self.rows.append(len(tokens))
        inputs = zip(state.sentences.tolist(), tokens.tolist(), strict=True)
        logits = torch.stack([torch.as_tensor(self.logits_of(s, state.steps, token)).double() for s, token in inputs])
        return logits, WrittenState(state.sentences, state.steps + 1, self)


@pytest.fixture
def written():
    return Written
