"""The precision in which a loaded run answers."""

import copy
import pickle

import pytest
import torch

from structattn.loading.runs import load
from structattn.support.errors import UsageError

CALLS = {
    "sentences": lambda run: (run.score(["a b"]), run.generate(["a"], max_length=3), run.explain(["a b"])),
    "formal language": lambda run: run.generate(n=2, max_length=4),
    "masked text": lambda run: run.score(["a b"]),
    "masked": lambda run: (run.predict(["a b b"]), run.explain(["a b b"])),
    "recurrent autoregressive": lambda run: run.predict(["a b b"]),
    "translation": lambda run: (run.score([("eins", "one")]), run.translate(["eins"]), run.explain(["eins"])),
}


@pytest.fixture(autouse=True)
def _any_processor(monkeypatch):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: None)


@pytest.mark.parametrize("precision", ["fp16", "", None])
def test_unknown_precisions_are_refused(run_dir, precision):
    with pytest.raises(UsageError, match=f"precision {precision!r} is unknown; expected one of float32, bf16"):
        load(run_dir("sentences"), precision=precision)


def test_bf16_is_refused_where_it_is_slow(run_dir, monkeypatch):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: "no instructions")
    with pytest.raises(UsageError, match="precision 'bf16' is slower than float32 here: no instructions"):
        load(run_dir("sentences"), device="cpu", precision="bf16")


@pytest.mark.parametrize("kind", CALLS)
def test_each_method_computes_products_in_the_precision(run_dir, kind):
    for precision, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        run, found = load(run_dir(kind), "last", "cpu", precision=precision), set()
        for module in run.model.modules():
            if type(module) is torch.nn.Linear:
                module.register_forward_hook(lambda module, inputs, output, found=found: found.add(output.dtype))
        CALLS[kind](run)
        assert found == {dtype}
        assert not torch.is_autocast_enabled("cpu")


def test_copies_and_pickles_keep_the_precision(run_dir):
    run = load(run_dir("sentences"), "last", "cpu", precision="bf16")
    exact = load(run_dir("sentences"), "last", "cpu").score(["a b c"])
    for each in (copy.copy(run), copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert each.score(["a b c"]) == run.score(["a b c"]) != exact


def test_a_translation_may_have_another_precision(run_dir):
    run = load(run_dir("translation"), device="cpu", precision="bf16")
    expected = load(run_dir("translation"), device="cpu").translate(["eins"])
    assert run.translate(["eins"], precision="float32") == expected != run.translate(["eins"])
