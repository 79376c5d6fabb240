"""Runs of a small text with random weights, and their probabilities by definition."""

import torch

from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

TEXT = "Bo sees a dog .\nA dog sees Bo , who sleeps .\nDogs don 't sleep .\n"
MODEL = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1}
BATCHES = {"sentences": {"kind": "tokens", "max_tokens": 64},
           "stream": {"kind": "stream", "sequence_length": 8, "batch_size": 2}}  # fmt: skip


def run_on(folder, mode="sentences", text=TEXT, model=MODEL, **options):
    for name in ("train", "valid"):
        (folder / name).write_text(text)
    prepare_language_modeling(
        folder / "data", folder / "train", folder / "valid", settings=TextSettings(mode=mode, **options)
    )
    prepared = open_prepared(folder / "data")
    tree = {"task": "language_modeling", "data": str(folder / "data"), "model": model,
            "training": {"batches": BATCHES[mode]}}  # fmt: skip
    torch.manual_seed(1)
    settings = resolve_settings(tree)
    return TrainedRun(folder, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)


def trained_on(folder, **options):
    """Train a run for two updates, in ``folder / "run"``."""
    run_on(folder, **options)
    training = {"batches": BATCHES["sentences"], "max_updates": 2, "max_epochs": None}
    tree = {"task": "language_modeling", "data": str(folder / "data"), "model": MODEL, "training": training}
    train(resolve_settings(tree), folder / "run")


def by_hand(run, ids, first, with_eos):
    """Log p of each token, one prefix at a time, with the softmax of the logits of its last position."""
    found = []
    for t, token in enumerate([*ids, *[2] * with_eos]):
        with torch.no_grad():
            logits = run.model(torch.tensor([[first, *ids[:t]]]))[0, -1].double()
        found.append(torch.log_softmax(logits, -1)[token - 2].item())
    return found
