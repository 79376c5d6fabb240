"""Export as a folder of Hugging Face, which loads without code of its own."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from structattn.interop.export.input_form import input_form, require_own_tables
from structattn.interop.export.tokenizer import TARGET_TOKENIZER, write_tokenizers
from structattn.loading.trained_run import TrainedRun
from structattn.support.errors import UsageError
from structattn.support.imports import lazy_function
from structattn.support.special_tokens import BOS
from structattn.tasks.model import resolved_model_settings
from structattn.text.folders.prepared import PreparedFolder

if TYPE_CHECKING:
    from structattn.interop.huggingface.conversion import save_as_transformers
else:
    save_as_transformers = lazy_function("structattn.interop.huggingface.conversion", "save_as_transformers")


def export_huggingface(run: TrainedRun, folder: Path) -> str:
    """Write configuration, weights and tokenizer."""
    require_own_tables(run, "huggingface")
    form, prepared, settings = input_form(run), run.prepared, run.settings
    source = prepared.vocabulary if prepared.parallel_sides is None else prepared.sides.source.vocabulary
    sizes = source.size, prepared.vocabulary.size
    start = form.before[0] if form.before else BOS
    model_settings = resolved_model_settings(settings.model, prepared)
    try:
        complete = _encodes_any_text(prepared)
        class_name = save_as_transformers(run.model, model_settings, sizes, folder, start, has_unknown=complete)
    except ImportError as error:
        raise UsageError(str(error)) from None
    write_tokenizers(run, folder, padding_side="left" if class_name.startswith("Structattn") else "right")
    if _adds_unknown(run, class_name):
        _logger.warning("%s: %s", run.run_dir, _UNSEEN.replace("`", ""))
    return _usage(run, class_name)


_logger = logging.getLogger("structattn")
_UNSEEN: Final = (
    "words that the run has not seen become `<unk>`, which was added with the mean of all embeddings and not trained; "
    "data prepared with `--min-count 2` have a trained one"
)


def _encodes_any_text(prepared: PreparedFolder) -> bool:
    """Return whether the vocabulary has ``<unk>``, or all bytes, and so needs none."""
    text = prepared.text_tokenizer
    return prepared.vocabulary.has_unknown or (text is not None and text.reads_bytes)


def _adds_unknown(run: TrainedRun, class_name: str) -> bool:
    return not (class_name.startswith("Structattn") or _encodes_any_text(run.prepared))


def _usage(run: TrainedRun, class_name: str) -> str:
    prepared, task = run.prepared, run.settings.task
    auto = {"translation": "AutoModelForSeq2SeqLM", "masked_language_modeling": "AutoModelForMaskedLM"}
    loader = auto.get(task, "AutoModelForMaskedLM" if "Masked" in class_name else "AutoModelForCausalLM")
    separate = prepared.parallel_sides is not None and not prepared.sides.joint
    trust = ", trust_remote_code=True" if class_name.startswith(("Structattn", "Stack")) else ""
    decoder = (
        f'AutoTokenizer.from_pretrained(FOLDER, subfolder="{TARGET_TOKENIZER}"{trust})' if separate else "tokenizer"
    )
    lines = [
        f"from transformers import {loader}, AutoTokenizer",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained(FOLDER{trust})",
        f"model = {loader}.from_pretrained(FOLDER{trust})",
        'inputs = tokenizer([TEXT], return_tensors="pt")',
        *(["outputs = model(**inputs).logits"] if "Masked" in loader else []),
        *([] if "Masked" in loader else _generation(decoder)),
    ]
    return "\n".join(
        ["```python", *lines, "```", "", "Special tokens in a text count as these tokens.", *_notes(run, class_name)]
    )


def _gpt2_note(adds_unknown: bool) -> str:
    left, end = ("`<pad>`, `<bos>` and `<unk>`", ":-1") if adds_unknown else ("`<pad>` and `<bos>`", ":")
    return f"""Some probability is left for {left}, which are never predicted, and positions count
padding. Log-probabilities of the run, under padding at either side:

```python
positions = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
model(**inputs, position_ids=positions).logits[..., 2{end}].log_softmax(-1)  # column c stands for id c + 2
```"""


def _notes(run: TrainedRun, class_name: str) -> list[str]:
    notes = []
    if class_name.startswith(("Structattn", "Stack")):
        code = "`trust_remote_code=True` runs the one line of `modeling_structattn.py`, which imports structattn"
        notes = ["", f"{code}; after `import structattn.interop.huggingface` it is not needed."]
    if class_name.endswith("GPT2LMHeadModel"):
        notes += ["", _gpt2_note(_adds_unknown(run, class_name))]
    if _adds_unknown(run, class_name):
        notes += ["", f"{_UNSEEN[0].upper()}{_UNSEEN[1:]}."]
    return notes


def _generation(decoder: str) -> list[str]:
    return [
        "outputs = model.generate(**inputs, do_sample=False)",
        f"print({decoder}.batch_decode(outputs, skip_special_tokens=True))",
    ]
