"""Code of the guide to Python that pages do not run."""

import pytest
import torch
from pages import ROOT, blocks
from torch import nn

from structattn.models.builders import build_model
from structattn.settings import LanguageModelSettings
from structattn.tasks.losses import CROSS_ENTROPY
from structattn.text.batching.sequences import Batch

GUIDE = ROOT / "docs" / "guides" / "python.md"


def test_the_step_of_a_cuda_graph_has_the_loss_of_training():
    (block,) = (block for block in blocks(GUIDE) if "CUDAGraph" in block.text)
    step, _, _ = block.text.partition("stream = ")
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1}
    model = build_model(LanguageModelSettings.model_validate(sizes), vocabulary_size=9).eval()
    names = {"torch": torch, "nn": nn, "model": model}
    exec(step.replace(", capturable=True", "").replace('device="cuda"', 'device="cpu"'), names)
    tokens = names["tokens"]
    tokens.copy_(torch.randint(2, 9, tokens.shape))
    tokens[:, 0] = 1  # <bos>
    lengths = torch.full((len(tokens),), tokens.shape[1] - 1)
    batch = Batch(tokens[:, :-1], tokens[:, 1:], lengths, tuple(range(len(tokens))))
    expected = CROSS_ENTROPY(model, batch).item() / batch.targets.numel()
    assert names["step"]().item() == pytest.approx(expected, rel=1e-5)
