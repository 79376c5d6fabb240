"""Translation runs that have learnt nothing, made without training."""

import random

import pytest
import torch

from structattn.building.models import build_model_for
from structattn.data.folders.prepared import open_prepared
from structattn.data.parallel.prepare import prepare_parallel
from structattn.data.parallel.tokenizer_training import Coding
from structattn.inference.runs import TrainedRun
from structattn.settings.run import resolve_settings

WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five"}
SIZES = {"width": 8, "heads": 2, "feedforward_width": 8}
SIDES = {"kind": "encoder_decoder", "encoder": {"layers": 2}, "decoder": {"layers": 2}}


@pytest.fixture(scope="session")
def parallel_data(tmp_path_factory):
    """Number words in two languages, 1 to 14 a line, prepared with a numbering for each side."""
    place, generator = tmp_path_factory.mktemp("pairs"), random.Random(4)
    splits = {}
    for name in ("train", "valid", "test"):
        lines = [generator.choices(list(WORDS), k=generator.randint(1, 14)) for _ in range(24)]
        texts = {"de": lines, "en": [[WORDS[word] for word in line][: 1 + len(line) // 2] for line in lines]}
        splits[name] = [place / f"{name}.{side}" for side in texts]
        for path, text in zip(splits[name], texts.values(), strict=True):
            path.write_text("".join(" ".join(line) + "\n" for line in text), encoding="utf-8")
    prepare_parallel(place / "data", splits, coding=Coding("word", joint=False))
    return place / "data"


@pytest.fixture
def translation_run(parallel_data, tmp_path):
    """translation_run(**model) is a run with a model of drawn weights."""

    def make(**model):
        tree = {
            "task": "translation",
            "data": str(parallel_data),
            "model": {**SIZES, **(model if "kind" in model else SIDES | model)},
            "training": {"batches": {"kind": "pairs", "tokens": 100}},
        }
        settings, prepared = resolve_settings(tree), open_prepared(parallel_data)
        torch.manual_seed(5)
        return TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)

    return make
