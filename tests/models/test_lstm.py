"""LSTM layers under autocast, on CPUs with and without LSTMs in low precision."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from structattn.models import BidirectionalComposition, ForwardComposition, SpellingDecoder
from structattn.models.lstm import apply_lstm, autocast_lacks_lstm
from structattn.models.recurrent.deep import DeepRecurrence
from structattn.models.recurrent.recurrence import Recurrence
from structattn.support.devices import fast_autocast_dtypes, processor_flags

CHARACTERS, SIZE, HIDDEN = 9, 6, 5
SPELLINGS = torch.tensor([[1, 4, 5, 6, 2], [1, 7, 2, 0, 0]])
CASES = {
    "bidirectional composition": lambda: (BidirectionalComposition(CHARACTERS, SIZE, 4, HIDDEN), SPELLINGS),
    "coupled composition": lambda: (BidirectionalComposition(CHARACTERS, SIZE, 4, HIDDEN, coupled=True), SPELLINGS),
    "forward composition": lambda: (ForwardComposition(CHARACTERS, SIZE, 4), SPELLINGS),
    "spelling decoder": lambda: (SpellingDecoder(CHARACTERS, SIZE, 4, HIDDEN), torch.randn(2, SIZE), SPELLINGS),
    "lstm": lambda: (Recurrence(SIZE, HIDDEN), torch.randn(2, 4, SIZE)),
    "rnn": lambda: (Recurrence(SIZE, HIDDEN, cell="tanh"), torch.randn(2, 4, SIZE)),
}
LIMITS = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("cell", ["lstm", "tanh", "relu"])
@pytest.mark.parametrize("width", [1, SIZE - 1, SIZE + 1, 1000])
def test_inputs_of_another_width_are_refused(cell, width):
    for network in (Recurrence(SIZE, HIDDEN, cell=cell), DeepRecurrence(SIZE, HIDDEN, 2, cell)):
        with pytest.raises(ValueError, match=rf"\(2, 3, {width}\); expected \(B, T, {SIZE}\)"):
            network(torch.randn(2, 3, width))
    with pytest.raises(ValueError, match="num_layers=0; expected at least 1"):
        DeepRecurrence(SIZE, HIDDEN, 0, cell)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_autocast_keeps_outputs_and_gradients_close(case, dtype):
    torch.manual_seed(1)
    model, *inputs = CASES[case]()
    expected = model(*inputs)
    with torch.autocast("cpu", dtype=dtype):
        found = model(*(value.to(dtype) if value.is_floating_point() else value for value in inputs))
    assert (found - expected).norm() <= 0.05 * expected.norm()
    parameters = list(model.parameters())
    directions = torch.randn_like(expected)
    exact = torch.autograd.grad((expected * directions).sum(), parameters)
    rough = torch.autograd.grad((found.float() * directions).sum(), parameters)
    for ours, theirs in zip(rough, exact, strict=True):
        assert (ours - theirs).norm() <= 0.05 * theirs.norm() + 1e-3


def test_lstm_without_low_precision_support_runs_in_float32_under_autocast(monkeypatch):
    torch.manual_seed(1)
    lstm, x, state = nn.LSTM(3, 4, 2, batch_first=True), torch.randn(2, 5, 3), torch.randn(2, 2, 2, 4)
    expected = lstm(x, (state[0], state[1]))
    monkeypatch.setattr("structattn.models.lstm.fast_autocast_dtypes", lambda device: set())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert autocast_lacks_lstm(x.device)
        found = apply_lstm(lstm, x, (state[0], state[1]))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not autocast_lacks_lstm(x.device)


def test_fast_autocast_dtypes_on_this_processor():
    """Also run below, with oneDNN limited to AVX2."""
    limited = os.environ.get("ONEDNN_MAX_CPU_ISA") == "AVX2"
    has_bf16 = bool({"avx512_bf16", "amx_bf16", "bf16"} & processor_flags())
    assert (torch.bfloat16 in fast_autocast_dtypes(torch.device("cpu"))) == (has_bf16 and not limited)


@pytest.mark.apart
def test_recurrent_models_run_without_avx512():
    """Run the autocast tests of recurrent models in a process that is limited to AVX2."""
    files = [__file__, *(str(ROOT / "tests/models" / name) for name in ("characters", "recurrent"))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "autocast", *files]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **LIMITS}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
