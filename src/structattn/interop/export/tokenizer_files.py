"""The files of tokenizers in an exported folder, as the library tokenizers and transformers read them."""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from structattn.interop.export.input_form import MASK_SYMBOL, InputForm, input_form
from structattn.interop.export.tokenizer import make_tokenizer
from structattn.loading.trained_run import TrainedRun
from structattn.support.files import create_folder_unflushed, write_unflushed
from structattn.support.special_tokens import EOS
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS

TARGET_TOKENIZER: Final = "target_tokenizer"
_NUM_EXAMPLES: Final = 1000


def write_tokenizers(run: TrainedRun, folder: Path, max_length: int) -> None:
    """Write the tokenizer of the inputs, and that of the target into a subfolder if it has its own vocabulary.

    Args:
        run: the run.
        folder: an existing folder.
        max_length: the maximum number of tokens of an input.

    Raises:
        UsageError: a tokenizer cannot be expressed, or a library is not installed.
    """
    form, prepared = input_form(run), run.prepared
    source = prepared.tokenizer if prepared.parallel_sides is None else prepared.sides.source
    _write_tokenizer(source, form, _examples(run, source), max_length, folder)
    if prepared.parallel_sides is not None and not prepared.sides.joint:
        create_folder_unflushed(folder / TARGET_TOKENIZER)
        target = prepared.sides.target
        _write_tokenizer(target, form, _examples(run, target), max_length, folder / TARGET_TOKENIZER)


def _examples(run: TrainedRun, text: TextTokenizer) -> Sequence[Sequence[int]]:
    """Return the ids of lines of validation data, else of training data."""
    prepared = run.prepared
    split = next(iter(sorted(prepared.splits, key=lambda name: name != "valid")))
    is_source = prepared.parallel_sides is not None and text is prepared.sides.source
    sequences = prepared.pairs(split).source if is_source else prepared.split(split)
    return [sequences[index].tolist() for index in islice(range(len(sequences)), _NUM_EXAMPLES)]


def _write_tokenizer(
    text: TextTokenizer, form: InputForm, examples: Sequence[Sequence[int]], max_length: int, folder: Path
) -> None:
    found = make_tokenizer(text, form.before, form.after, examples)
    names = [found.id_to_token(index) for index in range(len(CONTROL_SYMBOLS))]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **dict(zip(("pad_token", "bos_token", "eos_token"), names, strict=True)),
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length,
        "padding_side": "right" if EOS in form.after else "left",
    }
    if form.has_mask:
        found.add_special_tokens([MASK_SYMBOL])  # its id is the next one
        config["mask_token"] = MASK_SYMBOL
    write_unflushed(folder / "tokenizer.json", found.to_str())
    write_unflushed(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
