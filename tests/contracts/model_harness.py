"""Build models from settings, and call models of any kind with texts: what ``test_models.py`` needs for all of them."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from structattn.attention import Explanation
from structattn.models import EncoderDecoder, SpelledEmbedding
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder, build_language_model, build_model
from structattn.models.builders.recognition import build_recognizer
from structattn.models.builders.recurrent import build_recurrent
from structattn.models.protocols import AttendingModel
from structattn.models.recognition import RecognitionHeads
from structattn.settings.huggingface import HuggingfaceSettings
from structattn.settings.recurrent import RecurrentSettings
from structattn.settings.run import RunSettings, resolve_settings
from structattn.settings.transformer import (
    EncoderDecoderSettings,
    LanguageModelSettings,
    TwoStreamEncoderDecoderSettings,
)
from structattn.support.special_tokens import BOS
from structattn.tasks.recognition.losses import recognition_logits

VOCABULARY, CHARACTERS, FIRST, SEED = 11, 7, 3, 3
SPELLED = ("142", "152", "162", "1442", "1452", "1542", "1662")  # character ids of the words 4 to 10
OOV = torch.tensor([[1, 6, 6, 6, 4, 2], [1, 5, 5, 2, 0, 0]])  # spellings of the ids past the vocabulary
WORDS = VocabularySpec(
    VOCABULARY, CHARACTERS, lambda: torch.tensor([[*map(int, word.ljust(4, "0"))] for word in SPELLED])
)
LENGTHS = torch.tensor([4, 2, 3, 0]), torch.tensor([3, 5, 0, 1])  # of sources, if there are any, and of texts
TASKS = {
    **dict.fromkeys(("masked", "roberta"), "masked_language_modeling"),
    **dict.fromkeys(("encoder_decoder", "two_stream_encoder_decoder"), "translation"),
}


@dataclass(frozen=True)
class ModelCase:
    """A model as the settings of a run.

    Args:
        model: the settings of the model.
        task: the task of the run; empty: the usual one of the kind of model.
        recognition: the auxiliary losses of the task recognition, which decide on the outputs.
    """

    model: Mapping[str, Any]
    task: str = ""
    recognition: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def run(self) -> RunSettings:
        """The settings of the run."""
        task = self.task or TASKS.get(self.kind, "language_modeling")
        training: dict[str, Any] = {"batches": "pairs" if task == "translation" else "sequences"}
        if self.recognition:
            training["recognition"] = self.recognition
        return resolve_settings({"task": task, "data": "unused", "model": self.model, "training": training})

    @property
    def kind(self) -> str:
        """The kind of model."""
        return str(self.model["kind"])

    @property
    def is_causal(self) -> bool:
        """Whether the model predicts a token from those before it."""
        return self.kind not in ("masked", "roberta")

    @property
    def goes_step_by_step(self) -> bool:
        """Whether the model has steps: it is causal, and knows nothing of the end of its text."""
        backward = getattr(getattr(self.run.model, "positions", None), "direction", "forward") == "backward"
        return self.is_causal and not backward and not self.has_blanks

    @property
    def has_blanks(self) -> bool:
        """Whether the model reads blank positions after each text."""
        return "padding" in (self.model.get("loops") or ())

    @property
    def shortest(self) -> int:
        """The length of the shortest texts: 0, but models of transformers read some, and recognizers <bos>."""
        return int(self.task == "recognition" or self.kind in ("gpt2", "roberta"))

    def initialized(self, seed: int) -> nn.Module:
        """Build the model with initial weights."""
        torch.manual_seed(seed)
        settings: Any = self.run.model
        match settings:
            case HuggingfaceSettings():
                from structattn.interop.huggingface.language_models import build_huggingface

                return build_huggingface(settings, VOCABULARY)
            case _ if self.task == "recognition":
                return build_recognizer(settings, VOCABULARY, self.run.training.recognition)
            case LanguageModelSettings():
                return build_language_model(settings, WORDS)
            case RecurrentSettings():
                return build_recurrent(settings, WORDS)
            case EncoderDecoderSettings() | TwoStreamEncoderDecoderSettings():
                return build_encoder_decoder(settings, WORDS, WORDS)
        return build_model(settings, VOCABULARY)

    @cached_property
    def initial(self) -> nn.Module:
        """The model with initial weights."""
        return self.initialized(SEED)

    @cached_property
    def built(self) -> nn.Module:
        """The model in evaluation mode, in float64, with weights so large that every part of it matters."""
        model, generator = copy.deepcopy(self.initial).double().eval(), torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-0.7, 0.7, generator=generator)
        return model

    @cached_property
    def in_float32(self) -> nn.Module:
        """The same model in float32."""
        return copy.deepcopy(self.built).float()

    @cached_property
    def whole(self) -> Tensor:
        """The outputs for ``texts_for`` the model."""
        with torch.no_grad():
            return logits_of(self.built, texts_for(self.built))

    @cached_property
    def padded(self) -> "PaddedBatch":
        """A padded batch of texts."""
        return PaddedBatch.of(self.built, padded_texts(self.built, self.shortest))


@dataclass(frozen=True)
class Texts:
    """A batch: ids of the sources, if there are any, and of the texts; and the number of tokens of each, None: all."""

    tokens: tuple[Tensor, ...]
    lengths: tuple[Tensor | None, ...]

    def rows(self, indices: Tensor | slice) -> "Texts":
        """Return some texts in the given order, with repetition."""
        tokens, lengths = (
            tuple(None if each is None else each[indices] for each in side) for side in (self.tokens, self.lengths)
        )
        return Texts(tokens, lengths)

    def alone(self, row: int) -> "Texts":
        """Return one text, without padding."""
        pairs = zip(self.tokens, self.lengths, strict=True)
        tokens = tuple(each[row : row + 1, : None if ends is None else int(ends[row])] for each, ends in pairs)
        return Texts(tokens, (None,) * len(tokens))

    def is_real(self, side: int = -1) -> Tensor:
        """Return which positions of a side are tokens, not padding."""
        tokens, lengths = self.tokens[side], self.lengths[side]
        ends = torch.full((len(tokens),), tokens.shape[1]) if lengths is None else lengths
        return torch.arange(tokens.shape[1]) < ends[:, None]

    def changed(self, positions: slice, side: int = -1) -> "Texts":
        """Return texts with other words at some positions of a side."""
        tokens = [each.clone() for each in self.tokens]
        tokens[side][:, positions] = FIRST + (tokens[side][:, positions] - FIRST + 1) % (VOCABULARY - FIRST)
        return replace(self, tokens=tuple(tokens))

    def padded(self, lengths: tuple[Tensor | None, ...], token: int = 0) -> "Texts":
        """Return texts with padding from these lengths on."""
        texts = replace(self, lengths=lengths[-len(self.tokens) :])
        sides = range(len(self.tokens))
        return replace(
            texts, tokens=tuple(self.tokens[side].masked_fill(~texts.is_real(side), token) for side in sides)
        )

    def continuing(self, tokens: Tensor) -> "Texts":
        """Return the same sources with other texts."""
        return Texts((*self.tokens[:-1], tokens), (*self.lengths[:-1], None))


def texts_for(model: nn.Module, first: int = BOS, batch: int = 4, time: int = 5, seed: int = 0) -> Texts:
    """Return texts without padding that begin with a token, in which no word is repeated.

    Without positions, hard attention to a word that is repeated is decided by rounding.
    """
    generator = torch.Generator().manual_seed(seed)

    def words(count: int, time: int) -> Tensor:
        return FIRST + torch.stack([torch.randperm(count, generator=generator)[:time] for _ in range(batch)])

    tokens = torch.cat([torch.full((batch, 1), first), words(VOCABULARY - FIRST, time - 1)], 1)
    if not isinstance(model, EncoderDecoder):
        return Texts((tokens,), (None,))
    source = words(VOCABULARY - FIRST + (len(OOV) if spellings(model) else 0), time - 1)
    return Texts((source, tokens), (None, None))


def padded_texts(model: nn.Module, shortest: int, token: int = 0, same_start: bool = False) -> Texts:
    """Return four texts with padding, one of them without; the last begins with no <bos> unless ``same_start``."""
    texts = texts_for(model)
    if not same_start:
        texts.tokens[-1][-1, 0] = FIRST + 1
    return texts.padded(tuple(each.clamp(min=shortest) for each in LENGTHS), token)


def logits_of(model: nn.Module, texts: Texts) -> Tensor:
    """Return the outputs at each position of whole texts."""
    if isinstance(getattr(model, "output", None), RecognitionHeads):
        label, *others = recognition_logits(model, texts.tokens[0], texts.lengths[0])
        return torch.cat([label[..., None], *(each for each in others if each is not None)], -1)
    logits: Tensor = model(*texts.tokens, *texts.lengths, **spellings(model))
    return logits


def spellings(model: nn.Module) -> dict[str, Tensor]:
    """Return the argument with the spellings of words out of the vocabulary, for models that take it."""
    spelled = isinstance(model, EncoderDecoder) and isinstance(model.source, SpelledEmbedding)
    return {"oov_spellings": OOV} if spelled else {}


def start(model: Any, texts: Texts) -> Any:
    """Return the state before the first token."""
    if isinstance(model, EncoderDecoder):
        return model.initial_state(texts.tokens[0], texts.lengths[0], **spellings(model))
    return model.initial_state(len(texts.tokens[0]))


def by_steps(model: Any, texts: Texts) -> Tensor:
    """Return the outputs at each position, step by step."""
    state, steps = start(model, texts), []
    for tokens in texts.tokens[-1].unbind(1):
        logits, state = model.step(tokens, state)
        steps.append(logits)
    return torch.stack(steps, 1)


Place = tuple[int, int, str]
"""The index of a side in ``Texts.tokens``, of a layer, and the name of a sublayer."""


def explanations(model: Any, texts: Texts) -> dict[Place, Explanation]:
    """Return the explanations of all layers."""
    found = model.explain(*texts.tokens, *texts.lengths, **spellings(model))
    sides = (found.encoder, found.decoder) if isinstance(model, EncoderDecoder) else (found,)
    return {(side, each.layer, each.sublayer): each for side, records in enumerate(sides) for each in records}


def attended(model: Any, texts: Texts) -> tuple[Tensor, dict[Place, Tensor]]:
    """Return the outputs of the pass that returns attention weights, too, and these weights."""
    if isinstance(model, EncoderDecoder):
        x, weights = model.attended_hidden_states(*texts.tokens, *texts.lengths, **spellings(model))
        logits, sides = model.logits(x), ([(own, None) for own in weights.encoder], weights.decoder)
    else:
        assert isinstance(model, AttendingModel)
        logits, of_layers = model.attend(*texts.tokens, *texts.lengths)
        sides = ([(own, None) for own in of_layers],)
    found = {
        (side, layer, name): each
        for side, layers in enumerate(sides)
        for layer, pair in enumerate(layers)
        for name, each in zip(("attention", "cross"), pair, strict=True)
    }
    return logits, {place: each for place, each in found.items() if each is not None}


def gradients_of(model: nn.Module, outputs: Tensor, cotangent: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of all parameters."""
    return torch.autograd.grad(outputs, list(model.parameters()), cotangent, materialize_grads=True)


def cotangent_for(outputs: Tensor) -> Tensor:
    """Return random numbers."""
    return torch.randn(outputs.shape, generator=torch.Generator().manual_seed(1), dtype=outputs.dtype)


@dataclass(frozen=True)
class PaddedBatch:
    """Texts with padding, their outputs, and the gradients for a cotangent, which is zero at padding."""

    texts: Texts
    logits: Tensor
    cotangent: Tensor
    gradients: tuple[Tensor, ...]

    @staticmethod
    def of(model: nn.Module, texts: Texts) -> "PaddedBatch":
        """Compute all of it."""
        real = texts.is_real()[..., None]
        logits = logits_of(model, texts).where(real, 0)
        cotangent = cotangent_for(logits) * real
        return PaddedBatch(texts, logits.detach(), cotangent, gradients_of(model, logits, cotangent))
