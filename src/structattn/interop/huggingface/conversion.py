"""Convert the model of a run to one of transformers: GPT-2 where it is one, else a model of this package's own."""

import copy
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from structattn.interop.huggingface.configuration import StructattnConfig, StructattnSeq2SeqConfig
from structattn.interop.huggingface.language_models import HuggingfaceLanguageModel
from structattn.interop.huggingface.own_models import OwnModel, StructattnForCausalLM, StructattnForMaskedLM
from structattn.interop.huggingface.own_seq2seq import OWN_CLASSES, StructattnForSeq2SeqLM
from structattn.interop.huggingface.pretrained import quiet
from structattn.interop.huggingface.remote_code import auto_map_of
from structattn.models import Embedding, LanguageModel, MaskedLanguageModel
from structattn.models.builders.mechanisms import dropout_rate
from structattn.settings.base import Settings
from structattn.settings.embeddings import (
    UNLIMITED_POSITIONS,
    Learned,
    NoPositions,
    Sinusoidal,
    TableEmbedding,
    max_positions,
)
from structattn.settings.layers import SoftmaxLayer
from structattn.settings.models import ModelSettings
from structattn.settings.transformer import EncoderDecoderSettings, LanguageModelSettings
from structattn.support.files import let_others_read
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS, FIRST_SYMBOL, PAD


def is_gpt2(settings: Settings) -> bool:
    """Return whether GPT-2 computes the same as a model with these settings.

    It does for pre-norm layers of softmax attention and feed-forward sublayers, without loops and stacks, with tied
    embeddings and positions that are added to them.
    """
    if not isinstance(settings, LanguageModelSettings) or settings.d_ff is None or settings.norm != "pre":
        return False
    if settings.loops is not None or settings.depth_stack is not None:
        return False
    positions = settings.positions
    added = isinstance(positions, Learned | NoPositions) or (
        isinstance(positions, Sinusoidal) and positions.direction == "forward"
    )
    plain = SoftmaxLayer.model_validate({"num_heads": settings.layers[0].model_dump().get("num_heads")})
    tied = settings.tied_embeddings and isinstance(settings.embedding, TableEmbedding)
    return added and tied and all(layer == plain for layer in settings.layers)


@torch.no_grad()
def gpt2_from_own(model: LanguageModel, settings: LanguageModelSettings) -> GPT2LMHeadModel:
    """Return a GPT-2 whose logits of ids from 2 on are those of a model for which ``is_gpt2`` holds.

    It has the model's dropout but that of hidden units, which GPT-2 has not.
    The logits of ``<pad>`` and ``<bos>`` are 0; generation suppresses them.
    """
    positions = max_positions(settings) or UNLIMITED_POSITIONS
    config = GPT2Config(
        vocab_size=cast(Embedding, model.embedding).vocabulary_size,
        n_positions=positions,
        n_embd=settings.d_model,
        n_inner=settings.d_ff,
        n_layer=len(settings.layers),
        n_head=model.layers.blocks[0].attention.layer.num_heads,
        activation_function="relu",
        tie_word_embeddings=False,
        resid_pdrop=settings.dropout,
        embd_pdrop=dropout_rate(settings, settings.embedding_dropout),
        attn_pdrop=dropout_rate(settings, settings.attention_dropout),
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    gpt2 = GPT2LMHeadModel(config)
    gpt2.load_state_dict(_weights(model, positions))
    return gpt2


def _weights(model: LanguageModel, positions: int) -> dict[str, Tensor]:
    embedding = cast(Embedding, model.embedding)
    table, classes, added = embedding.table.weight, embedding.class_embeddings(), embedding.positions
    d_model = table.shape[1]
    weights: dict[str, Tensor] = {
        "transformer.wte.weight": table * embedding.factor,
        "transformer.wpe.weight": table.new_zeros(positions, d_model) if added is None else added(0, positions),
        "lm_head.weight": torch.cat([classes.new_zeros(CLASS_OFFSET, d_model), classes]),
    }
    for index, block in enumerate(model.layers.blocks):
        attention, feedforward, name = block.attention, block.feedforward, f"transformer.h.{index}"
        weights |= _linear(f"{name}.attn.c_attn", attention.layer.projection)
        weights |= _linear(f"{name}.attn.c_proj", attention.layer.output)
        weights |= _linear(f"{name}.mlp.c_fc", feedforward.layer.hidden)
        weights |= _linear(f"{name}.mlp.c_proj", feedforward.layer.output)
        weights |= _norm(f"{name}.ln_1", attention.norm) | _norm(f"{name}.ln_2", feedforward.norm)
    return weights | _norm("transformer.ln_f", model.layers.final)


def _linear(name: str, linear: torch.nn.Linear) -> dict[str, Tensor]:
    """GPT-2 stores the transposed matrix, and always has a bias."""
    bias = linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
    return {f"{name}.weight": linear.weight.T, f"{name}.bias": bias}


def _norm(name: str, norm: Any) -> dict[str, Tensor]:
    return {f"{name}.{part}": getattr(norm, part) for part in ("weight", "bias")}


MAX_NEW_TOKENS: Final = 512  # that ``generate`` adds by default; half of the positions of shorter models


def transformers_model(
    model: nn.Module, settings: ModelSettings, source_size: int, vocabulary_size: int
) -> PreTrainedModel:
    """Return a model of transformers that may share the weights of ``model``; see ``save_as_transformers``."""
    if isinstance(model, HuggingfaceLanguageModel):
        return model.model
    if is_gpt2(settings):
        return gpt2_from_own(cast(LanguageModel, model), cast(LanguageModelSettings, settings)).eval()
    tree = settings.model_dump(mode="json", exclude_defaults=True) | {"kind": settings.kind}
    if isinstance(settings, EncoderDecoderSettings):
        sizes = {"vocab_size": vocabulary_size, "source_vocab_size": source_size}
        return _with_weights(StructattnForSeq2SeqLM, StructattnSeq2SeqConfig(settings=tree, **sizes), model)
    own_class = StructattnForMaskedLM if isinstance(model, MaskedLanguageModel) else StructattnForCausalLM
    return _with_weights(own_class, StructattnConfig(settings=tree, vocab_size=vocabulary_size), model)


def _with_weights(own_class: type[OwnModel], config: Any, model: nn.Module) -> OwnModel:
    own = own_class(config)
    own.model = model
    own.eval()
    return own


@torch.no_grad()
def with_unknown_symbol(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy that takes one more id, the last, for words that the vocabulary lacks.

    Its embedding is the mean of those of words and its logit 0, unless it is that of tied embeddings.
    """
    extended, ids = copy.deepcopy(model), model.get_input_embeddings().num_embeddings
    with quiet(), torch.random.fork_rng(devices=[]):
        extended.resize_token_embeddings(ids + 1, mean_resizing=False)
    table, head = extended.get_input_embeddings().weight, extended.get_output_embeddings()
    head.weight[ids] = 0
    if head.bias is not None:
        head.bias[ids] = 0
    table[ids] = table[FIRST_SYMBOL:ids].mean(0)
    return extended


def save_as_transformers(
    model: nn.Module,
    settings: ModelSettings,
    sizes: tuple[int, int],
    folder: Path,
    start: int,
    *,
    has_unknown: bool = True,
) -> str:
    """Write configuration, weights and settings of ``generate`` into a folder, unflushed; return the name of the class.

    Args:
        model: of a run.
        settings: of the model.
        sizes: the numbers of ids of the source of a translation, and of the vocabulary.
        folder: an existing folder.
        start: the id that texts begin with.
        has_unknown: whether the vocabulary has ``<unk>`` or needs none; else a class of transformers, which refuses no
            other id by name, gets one.
    """
    converted = transformers_model(model, settings, *sizes)
    ours = isinstance(converted, OwnModel)
    never = list(range(CLASS_OFFSET))
    if not (ours or has_unknown):
        converted = with_unknown_symbol(converted)
        never.append(converted.config.vocab_size - 1)
    if isinstance(converted, GPT2LMHeadModel):
        converted.config.bos_token_id = start
    if ours:
        converted.config.auto_map = auto_map_of(converted, OWN_CLASSES)
    if converted.can_generate():
        maximum = max_positions(settings) if ours else converted.config.max_position_embeddings
        converted.generation_config = GenerationConfig(
            pad_token_id=PAD,
            bos_token_id=start,
            eos_token_id=EOS,
            decoder_start_token_id=BOS if converted.config.is_encoder_decoder else None,
            max_new_tokens=min(MAX_NEW_TOKENS, max(1, (maximum or 2 * MAX_NEW_TOKENS) // 2)),
            suppress_tokens=None if ours else never,
        )
    with quiet():
        converted.save_pretrained(folder)
    for path in folder.glob("*.safetensors"):
        let_others_read(path)
    return type(converted).__name__
