"""Small trained runs of every kind that can be exported."""

import hashlib
import os

import pytest
import torch

from structattn.loading.runs import open_run
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.training.run_training import train

os.environ["HF_HUB_OFFLINE"] = "1"
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12}
TEXT = "a dog sees the cat\nthe cat likes a dog .\nno cats , no dogs\n\tHi  there\u00e9\n"
PAIRS = {"batches": {"kind": "pairs", "max_tokens": 100}}
STREAM = {"batches": {"kind": "stream", "sequence_length": 4, "batch_size": 2}}
TASKS = {
    "sentences": ("language_modeling", {}),
    "stream": ("language_modeling", STREAM),
    "masked": ("masked_language_modeling", {}),
    "dyck": ("formal_language", {}),
    "reversal": ("autoregressive_transduction", {"batches": {"batch_size": 4}}),
    "joint": ("translation", PAIRS),
    "separate": ("translation", PAIRS),
}


@pytest.fixture(scope="session")
def prepared_data(tmp_path_factory, parallel_data):
    """prepared_data(name, level) is a prepared folder of the data of a task."""
    place = tmp_path_factory.mktemp("data")
    (place / "text").write_text(TEXT * 3, encoding="utf-8")
    sides = {
        name: [parallel_data.parent / f"{name}.{side}" for side in ("de", "en")] for name in ("train", "valid", "test")
    }

    def make(name, level="word", **more):
        folder = place / hashlib.sha256(repr((name, level, more)).encode()).hexdigest()
        if folder.exists():
            return folder
        if name == "dyck":
            prepare_formal_language(folder, name, sizes=FormalLanguageSizes(8, 4, 1, (4, 6), (4, 6)))
        elif name == "reversal":
            prepare_transduction(folder, "reverse-string", sizes=TransductionSizes((2, 5), (6, 7), 2, 1))
        elif name in ("joint", "separate"):
            prepare_parallel(folder, sides, tokenizer=TokenizerSettings(level, name == "joint", 40, **more))
        else:
            mode = "stream" if name == "stream" else "sentences"
            settings = TextSettings(level, mode, skip_empty=True, **more)
            prepare_language_modeling(folder, place / "text", place / "text", settings=settings)
        return folder

    return make


@pytest.fixture(scope="session")
def trained(prepared_data, tmp_path_factory):
    """trained(name, model, level) is an opened run of one update; the same arguments give the same run."""
    made = {}

    def make(name, model, level="word", **more):
        key = repr((name, model, level, more))
        if key not in made:
            task, training = TASKS[name]
            tree = {"task": task, "data": str(prepared_data(name, level, **more)), "model": model}
            tree["training"] = {"max_updates": 1, "max_epochs": None, "loss": "token_mean", **training}
            made[key] = tmp_path_factory.mktemp("runs") / "run"
            with torch.enable_grad():
                train(resolve_settings(tree), made[key])
        return open_run(made[key], "last")

    return make
