"""Recordings as arrays of NumPy, and the packages that draw them."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.program import succeed

from structattn.explorer import record
from structattn.explorer.recording_archive import example_arrays, write_archive
from structattn.loading.runs import load


def test_each_head_and_stack_has_its_place(run_dir):
    (example,) = record(load(run_dir("sentences")), ["a b c"]).examples
    arrays = example_arrays(example)
    assert arrays["tokens"].tolist() == list(example.tokens)
    np.testing.assert_array_equal(arrays["surprisal"], np.float32(example.surprisal))
    time, checked = len(example.tokens), 0
    assert arrays["attention"].shape[2:] == (time, time)
    for each in example.records:
        if each.sublayer == "attention":
            expected = each.weights[:, 1:] if each.sources[0] == "(bottom)" else each.weights
            np.testing.assert_array_equal(arrays["attention"][each.layer, each.head or 0], np.float32(expected))
            checked += 1
    used = arrays["attention"].any(axis=(2, 3)).sum()
    assert used <= checked
    assert checked > 1


def test_all_kinds_have_the_layers_of_the_model(run_dir):
    (example,) = record(load(run_dir("sentences")), ["a b c"]).examples
    added = replace(example.records[0], layer=4, sublayer="stack", head=None)
    arrays = example_arrays(replace(example, records=(*example.records, added)))
    assert len(arrays["attention"]) == len(arrays["stack"]) == 5
    assert not arrays["stack"][:4].any()
    assert arrays["stack"][4].any()


def test_translations_have_three_kinds_of_attention(run_dir):
    (example,) = record(load(run_dir("translation")), ["eins zwei"], ["one two three"]).examples
    arrays = example_arrays(example)
    target, source = len(example.tokens), len(example.source)
    shapes = {name: array.shape[2:] for name, array in arrays.items() if name.endswith("attention")}
    assert shapes == {"encoder_attention": (source, source), "decoder_attention": (target, target),
                      "cross_attention": (target, source)}  # fmt: skip
    for name in shapes:
        np.testing.assert_allclose(arrays[name].sum(-1), 1, rtol=1e-5)


def test_the_command_writes_an_archive_without_pickles(run_dir, tmp_path):
    for name in ("first", "second"):
        succeed("explore", run_dir("sentences"), "--save", tmp_path / f"{name}.npz", "--text", "a b", "--text", "c")
    assert (tmp_path / "first.npz").read_bytes() == (tmp_path / "second.npz").read_bytes()
    with np.load(tmp_path / "first.npz", allow_pickle=False) as arrays:
        assert [arrays[f"{number}/tokens"].tolist()[1:] for number in (0, 1)] == [["a", "b"], ["c"]]


@pytest.mark.filterwarnings("ignore")
def test_bertviz_and_circuitsvis_draw_archives(run_dir, tmp_path):
    """The lines of docs/records.md."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed")
        attention = pytest.importorskip("circuitsvis.attention", reason="circuitsvis is not installed")
    write_archive(tmp_path / "record.npz", record(load(run_dir("sentences")), ["a b c"]))
    example = np.load(tmp_path / "record.npz")
    tokens, weights = example["0/tokens"].tolist(), example["0/attention"]
    shown = bertviz.head_view(list(torch.tensor(weights)[:, None]), tokens, html_action="return")
    drawn = attention.attention_patterns(tokens=tokens, attention=weights[-1])
    for page in (shown.data, str(drawn)):
        assert all(f'"{token}"' in page.replace("&quot;", '"') for token in tokens)
