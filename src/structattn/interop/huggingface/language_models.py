"""GPT-2 and RoBERTa as language models of runs: token ids and output classes are those of the prepared data."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import (
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from structattn.attention import Explanation
from structattn.interop.huggingface.cache import CACHE_NAME, stack_cache_layer
from structattn.interop.huggingface.stack_blocks import StackSublayer
from structattn.interop.huggingface.stack_models import add_stack_attention
from structattn.operators.common.states import Selectable
from structattn.settings.huggingface import Gpt2Settings, RobertaSettings
from structattn.support.shapes import Bool, Float, Int, Lengths
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS, PAD
from structattn.support.threads import in_this_thread

ROBERTA_NORM_EPSILON = 1e-5  # of all published RoBERTa models; the default of its configuration is another


class HuggingfaceLanguageModel(nn.Module):
    """A language model of transformers behind the protocol of ``structattn.models``.

    Args:
        model: a GPT-2 or RoBERTa with a head, with or without stacks, in whose vocabulary ids are those of the data.
        vocabulary_size: the number of ids of the data.
    """

    def __init__(self, model: PreTrainedModel, vocabulary_size: int) -> None:
        super().__init__()
        self.model, self.vocabulary_size = model, vocabulary_size

    @property
    def embedding(self) -> nn.Module:
        """The embeddings of tokens, without positions."""
        embeddings: nn.Module = self.model.get_input_embeddings()
        return embeddings

    def hidden_states(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Return the hidden states before the output layer."""
        x: Tensor = self._run(tokens, lengths).last_hidden_state
        return x

    @torch.no_grad()
    def explain(self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None) -> list[Explanation]:
        """Return the attention weights of each layer and the weights of its stack, first layer first."""
        with _recorded_inputs(self.model) as inputs, _eager(self.model):
            attentions = self._run(tokens, lengths, output_attentions=True).attentions
        explanations = []
        for layer, weights in enumerate(attentions):
            explanations.append(Explanation("softmax", _without_padding(weights, lengths), layer=layer))
            if layer in inputs:
                stack, x = inputs[layer]
                explanations.append(replace(stack.attention.explain(x, lengths), sublayer="stack", layer=layer))
        return explanations

    def _run(self, tokens: Tensor, lengths: Tensor | None, **more: Any) -> Any:
        raise NotImplementedError

    def _logits(self, hidden_states: Tensor) -> Tensor:
        logits: Tensor = self.model.lm_head(hidden_states)[..., CLASS_OFFSET : self.vocabulary_size]
        return logits


@dataclass(frozen=True)
class Gpt2State(Selectable):
    """The keys and values of each layer, and the history of its stack if it has one: an immutable value."""

    position: int
    cache: tuple[Any, ...]


class Gpt2LanguageModel(HuggingfaceLanguageModel):
    """A causal language model like ``structattn.models.LanguageModel``; padding at the end cannot matter."""

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time classes"]:
        """Return the logits of the token after each position; class c stands for id c + 2."""
        return self._logits(self.hidden_states(tokens, lengths))

    def initial_state(self, batch_size: int) -> Gpt2State:
        """Return the state before the first token, which is <bos>."""
        return Gpt2State(0, ())

    def step(self, tokens: Int[Tensor, " batch"], state: Gpt2State) -> tuple[Float[Tensor, "batch classes"], Gpt2State]:
        """Process one token of each sequence; return the logits of the next and the new state."""
        cache = DynamicCache(config=self.model.config)
        hidden_states = self.model.base_model(
            tokens[:, None], **{CACHE_NAME: _restore(cache, state)}, use_cache=True
        ).last_hidden_state
        layers = [(layer.keys, layer.values, getattr(layer, "history", None)) for layer in cache.layers]
        return self._logits(hidden_states[:, 0]), Gpt2State(state.position + 1, tuple(layers))

    def _run(self, tokens: Tensor, lengths: Tensor | None, **more: Any) -> Any:
        return self.model.base_model(tokens, use_cache=False, **more)


class RobertaLanguageModel(HuggingfaceLanguageModel):
    """A masked language model like ``structattn.models.MaskedLanguageModel``; the mask's id is the vocabulary size."""

    def __init__(self, model: PreTrainedModel, vocabulary_size: int) -> None:
        super().__init__(model, vocabulary_size)
        self.mask = vocabulary_size

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Lengths = None,
        predicted: Bool[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "... classes"]:
        """Return the logits of the token at each position, or at those where ``predicted`` is true, (N, classes)."""
        x = self.hidden_states(tokens, lengths)
        return self._logits(x if predicted is None else x[predicted])

    def _run(self, tokens: Tensor, lengths: Tensor | None, **more: Any) -> Any:
        real = None if lengths is None else torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        return self.model.base_model(tokens, attention_mask=real, **more)


def build_huggingface(settings: Gpt2Settings | RobertaSettings, vocabulary_size: int) -> HuggingfaceLanguageModel:
    """Build a model with initial weights drawn by its own rule from torch's global generator.

    Args:
        settings: the settings of the model.
        vocabulary_size: the number of ids, including special tokens; a RoBERTa has one more, the mask.
    """
    if isinstance(settings, Gpt2Settings):
        return Gpt2LanguageModel(_with_stack(_gpt2(settings, vocabulary_size), settings), vocabulary_size)
    return RobertaLanguageModel(_with_stack(_roberta(settings, vocabulary_size), settings), vocabulary_size)


def _with_stack(model: PreTrainedModel, settings: Gpt2Settings | RobertaSettings) -> PreTrainedModel:
    return model if settings.stack is None else add_stack_attention(model, settings.stack)


SIZES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "gpt2": {
            "d_model": "n_embd",
            "num_layers": "n_layer",
            "num_heads": "n_head",
            "d_ff": "n_inner",
            "max_positions": "n_positions",
        },
        "roberta": {
            "d_model": "hidden_size",
            "num_layers": "num_hidden_layers",
            "num_heads": "num_attention_heads",
            "d_ff": "intermediate_size",
            "max_positions": "max_position_embeddings",
        },
    }
)
"""Field of our settings -> field of the configuration of transformers."""


def _gpt2(settings: Gpt2Settings, vocabulary_size: int) -> PreTrainedModel:
    fields = _fields(settings, "resid_pdrop", "embd_pdrop", "attn_pdrop") | {"vocab_size": vocabulary_size}
    return GPT2LMHeadModel(GPT2Config(**fields))


def _roberta(settings: RobertaSettings, vocabulary_size: int) -> PreTrainedModel:
    fields = _fields(settings, "hidden_dropout_prob", "attention_probs_dropout_prob") | {
        "vocab_size": vocabulary_size + 1,
        "max_position_embeddings": settings.max_positions + 1 + PAD,  # positions count from the id of the padding + 1
        "layer_norm_eps": ROBERTA_NORM_EPSILON,
        "type_vocab_size": 1,
        "pad_token_id": PAD,
    }
    return RobertaForMaskedLM(RobertaConfig(**fields))


def _fields(settings: Gpt2Settings | RobertaSettings, *dropouts: str) -> dict[str, Any]:
    sizes = {theirs: getattr(settings, ours) for ours, theirs in SIZES[settings.kind].items()}
    return sizes | dict.fromkeys(dropouts, settings.dropout) | {"bos_token_id": BOS, "eos_token_id": EOS}


def _restore(cache: DynamicCache, state: Gpt2State) -> DynamicCache:
    """Fill an empty cache; its layers make new tensors when they grow, so that the state does not change."""
    for index, (keys, values, stack) in enumerate(state.cache):
        layer: Any = cache.layers[index] if stack is None else stack_cache_layer(cache, index)
        layer.update(keys, values)
        if stack is not None:
            layer.history = stack
    return cache


@contextmanager
def _recorded_inputs(model: nn.Module) -> Iterator[dict[int, tuple[StackSublayer, Tensor]]]:
    """Record the stack and its input in each layer that has one, during the next forward pass."""
    recorded: dict[int, tuple[StackSublayer, Tensor]] = {}
    with ExitStack() as hooks:
        for stack in model.modules():
            if isinstance(stack, StackSublayer):
                hooks.enter_context(stack.register_forward_pre_hook(in_this_thread(partial(_record, recorded))))
        yield recorded


def _record(recorded: dict[int, Any], stack: StackSublayer, inputs: tuple[Any, ...]) -> None:
    recorded[stack.layer] = stack, inputs[0]


@contextmanager
def _eager(model: PreTrainedModel) -> Iterator[None]:
    """Compute attention by the only implementation that returns its weights."""
    usual = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _without_padding(weights: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return weights
    real = torch.arange(weights.shape[2], device=weights.device) < lengths[:, None]
    return weights * real[:, None, :, None]
