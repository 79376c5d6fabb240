"""Weights of a pretrained GPT-2 or RoBERTa in a local folder, for the vocabulary of prepared data.

Nothing is downloaded, and only safetensors and JSON files are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedModel, RobertaForMaskedLM
from transformers.utils import logging as transformers_logging

from structattn.interop.huggingface.language_models import SIZES, HuggingfaceLanguageModel
from structattn.settings.huggingface import Gpt2Settings, RobertaSettings
from structattn.support.environment import is_out_of_memory
from structattn.support.errors import DataError, SettingsError, quoted
from structattn.support.files import sha256_of_file
from structattn.support.json_files import Shape, check_shape, parse_object
from structattn.support.reading import content_of
from structattn.support.shapes import Int
from structattn.support.special_tokens import BOS, EOS, PAD, UNK

CONFIG, WEIGHTS, TOKENIZERS = "config.json", "model.safetensors", ("tokenizer.json", "vocab.json")
UNKNOWN_SYMBOL, MASK_SYMBOL = "<unk>", "<mask>"

OTHERS: Mapping[str, Sequence[str]] = {
    "gpt2": (
        "activation_function",
        "layer_norm_epsilon",
        "scale_attn_weights",
        "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn",
        "tie_word_embeddings",
    ),
    "roberta": ("hidden_act", "layer_norm_eps", "type_vocab_size", "tie_word_embeddings"),
}
"""Fields of the configuration that have one supported value."""

BY_TOKEN = ("wte.weight", "word_embeddings.weight", "lm_head.weight", "lm_head.bias", "decoder.weight", "decoder.bias")
"""Ends of the names of tensors with a row for each token."""


class _ConfigShape(Shape):
    eos_token_id: int | None = None  # the library takes a list of them, too


class _AddedToken(Shape):
    content: str
    id: int


class _TokenizerModel(Shape):
    """The vocabulary: token -> id; of a unigram model, [token, score] in the order of the ids."""

    vocab: dict[str, int] | list[Annotated[list[Any], Field(min_length=2, max_length=2)]] = Field(default={})


class _TokenizerShape(Shape):
    model: _TokenizerModel = _TokenizerModel()
    added_tokens: list[_AddedToken] = Field(default=[])


def digests_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the configuration, the weights and the tokenizer in a folder, by file name.

    Raises:
        SettingsError: one is missing or cannot be read.
    """
    return {path.name: _digest(path) for path in (folder / CONFIG, folder / WEIGHTS, _tokenizer_path(folder))}


def load_pretrained(
    model: HuggingfaceLanguageModel, settings: Gpt2Settings | RobertaSettings, symbols: Sequence[str]
) -> None:
    """Copy pretrained weights into a model; its stacks keep their own.

    A token that the folder does not have, such as the <unk> of GPT-2, gets the mean of all rows. Its logit is then the
    mean logit, and by Jensen's inequality its probability at most 1 / (vocabulary size + 1); a random row would have a
    logit near 0, which is far above all others in GPT-2.

    Args:
        model: built for ``settings`` and these symbols.
        settings: the settings, whose ``pretrained`` names the folder.
        symbols: the vocabulary. ``<pad>``, ``<bos>`` and ``<eos>`` take the rows that the configuration of the folder
            names, ``<unk>`` and the mask those of the same names, and all others those of the same strings.

    Raises:
        SettingsError: the folder has another kind of model, other sizes, or lacks a symbol.
        DataError: a file in it is damaged.
    """
    assert settings.pretrained is not None
    folder = settings.pretrained
    theirs = _read_model(folder, settings.kind)
    _check_configuration(folder, settings, theirs.config, model.model.config)
    rows = _rows(folder, theirs.config, symbols, settings.kind == "roberta")
    own = model.model.state_dict()
    with torch.no_grad():
        for name, tensor in theirs.state_dict().items():
            if name.endswith(BY_TOKEN):
                known = rows >= 0
                own[name][known] = tensor[rows[known]].to(own[name])
                own[name][~known] = tensor.mean(0).to(own[name])
            elif name.endswith("position_embeddings.weight"):
                own[name][PAD + 1 :] = tensor[theirs.config.pad_token_id + 1 :]
            else:
                own[name].copy_(tensor)


def _read_model(folder: Path, kind: str) -> PreTrainedModel:
    config = folder / CONFIG
    fields = parse_object(content_of(config), config)
    if (found := fields.get("model_type")) != kind:
        raise SettingsError(f"model.pretrained: {config} is of a model of type {found!r}; expected {kind!r}")
    if kind == "roberta" and fields.get("pad_token_id", PAD) is None:
        raise DataError(config, "pad_token_id: null; positions are counted from it, expected an integer")
    check_shape(_ConfigShape, fields, config)
    model_class = GPT2LMHeadModel if kind == "gpt2" else RobertaForMaskedLM
    options = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
    try:
        with quiet():
            model, info = model_class.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **options)
    except Exception as error:  # the library may raise anything on damaged files
        if is_out_of_memory(error):
            raise
        raise DataError(folder, f"cannot be loaded: {str(error).splitlines()[0]}") from None
    if info["missing_keys"] or info["mismatched_keys"]:
        first = min(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
        raise DataError(folder / WEIGHTS, f"lacks the weights {first}, or they have another shape")
    return cast(PreTrainedModel, model)


def _check_configuration(folder: Path, settings: Gpt2Settings | RobertaSettings, theirs: Any, ours: Any) -> None:
    found = {field: getattr(theirs, name) for field, name in SIZES[settings.kind].items()}
    found["d_ff"] = 4 * found["d_model"] if found["d_ff"] is None else found["d_ff"]
    if settings.kind == "roberta":
        found["max_positions"] -= theirs.pad_token_id + 1
    if found != {field: getattr(settings, field) for field in found}:
        sizes = ", ".join(f"{field} {value}" for field, value in found.items())
        raise SettingsError(f"model.pretrained: the model in {folder} has {sizes}; set these under model")
    for name in OTHERS[settings.kind]:
        if getattr(theirs, name) != getattr(ours, name):
            raise SettingsError(
                f"model.pretrained: {folder / CONFIG} has {name} {getattr(theirs, name)!r}; "
                f"only {getattr(ours, name)!r} is supported"
            )


def _rows(folder: Path, config: Any, symbols: Sequence[str], with_mask: bool) -> Int[Tensor, " tokens"]:
    """Return the row in the pretrained tables of each of our ids, -1 for those without one."""
    ids = _token_ids(folder)
    special = {PAD: config.pad_token_id, BOS: config.bos_token_id, EOS: config.eos_token_id}
    special |= {UNK: ids.get(UNKNOWN_SYMBOL)} if UNKNOWN_SYMBOL in symbols else {}
    missing = [symbol for index, symbol in enumerate(symbols) if index not in special and symbol not in ids]
    if missing:
        raise SettingsError(
            f"model.pretrained: {len(missing)} of the {len(symbols)} symbols of the data, such as {missing[0]!r}, "
            f"are not in the vocabulary of {folder}; prepare the data with its tokenizer"
        )
    rows = [special[index] if index in special else ids[symbol] for index, symbol in enumerate(symbols)]
    rows += [ids.get(MASK_SYMBOL)] if with_mask else []
    found = torch.tensor([-1 if row is None else row for row in rows])
    if int(found.max()) >= config.vocab_size:
        raise DataError(folder, f"a token has the id {int(found.max())}; {CONFIG} has vocab_size {config.vocab_size}")
    return found


def _token_ids(folder: Path) -> dict[str, int]:
    """Return the id of each token of tokenizer.json or vocab.json."""
    path = _tokenizer_path(folder)
    ids = parse_object(content_of(path), path)
    if path.name == "tokenizer.json":
        check_shape(_TokenizerShape, ids, path)
        vocabulary, added = ids.get("model", {}).get("vocab", {}), ids.get("added_tokens", [])
        if isinstance(vocabulary, list):
            vocabulary = {token: index for index, (token, _) in enumerate(vocabulary)}
        ids = {**vocabulary, **{each["content"]: each["id"] for each in added}}
    for token, index in ids.items():
        if type(index) is not int or index < 0:
            raise DataError(path, f"the token {quoted(token)} has the id {quoted(index)}; expected an integer")
    return ids


def _tokenizer_path(folder: Path) -> Path:
    return next((folder / name for name in TOKENIZERS if (folder / name).exists()), folder / TOKENIZERS[0])


def _digest(path: Path) -> str:
    try:
        return sha256_of_file(path)
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror or error}"
        raise SettingsError(f"model.pretrained: {reason}; expected a folder written by save_pretrained") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Switch the progress bars of transformers off."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
