"""Benchmarks of training steps measure what training runs: kernels, or what they have compiled."""

import importlib
from pathlib import Path

import pytest
import torch
from torch import nn

from structattn.fast.layers import FastLayers

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    """Import a script of the benchmarks, which name each other without a package."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_the_profile_of_a_step_is_that_of_kernels(benchmark, tmp_path, monkeypatch):
    calls = []
    by_kernels = FastLayers.body_by_kernels
    monkeypatch.setattr(FastLayers, "body_by_kernels", lambda *args: [calls.append(1), by_kernels(*args)][1])
    step, watch = benchmark("profile_step").profiled_step("Tf", 2, 1, tmp_path)
    calls.clear()  # those of the comparison with the modules
    step()
    assert calls == [1]
    assert "layers, backward" in watch.milliseconds()


def test_a_profile_of_modules_is_refused(benchmark):
    model = nn.Module()
    model.layers = nn.Identity()
    with pytest.raises(RuntimeError, match="the layers have no kernels"):
        benchmark("profile_step").layers_by_kernels(model)


def test_a_compiled_step_compiles_the_model(benchmark, tmp_path, monkeypatch):
    script = benchmark("training_alternatives")
    for name, value in (("LENGTH", 2), ("STRINGS", 1), ("RESTARTS", 1)):
        monkeypatch.setattr(script, name, value)
    plan, update = script.plan_and_update("Tf", tmp_path)
    torch._dynamo.reset()
    work = script.compiled(plan, update, backend="eager")
    assert script.seconds_to_compile(work) > 0
    with pytest.raises(RuntimeError, match="the training step has compiled no graph"):
        script.seconds_to_compile(work)  # its graph is there
