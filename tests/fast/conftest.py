"""The comparison with kernels, which other tests make once for each architecture, is made for each model here."""

import importlib

import pytest


@pytest.fixture(autouse=True)
def _every_model_is_compared(monkeypatch):
    fast = importlib.import_module("structattn.fast.accelerate")
    monkeypatch.setattr(fast, "disagreement", fast.disagreement.__wrapped__)
