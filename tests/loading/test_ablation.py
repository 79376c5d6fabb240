"""Ablations: the validation cross-entropy of runs of every kind without each head and each sublayer."""

import copy
import json
import re
import shutil

import pytest
import torch
from tests.program import invoke, succeed

from structattn.attention.projections import OutputProjection
from structattn.cli.report_page import write_report
from structattn.explorer.ablation import ablate
from structattn.explorer.interventions import layers_by_side
from structattn.loading.runs import load
from structattn.runs.folder import RunFolder
from structattn.runs.logs import events_of
from structattn.support.errors import UsageError
from structattn.tasks.registry import kind_of

NUM_HEADS = 2


class Nothing(torch.nn.Module):
    """In place of a sublayer: zeros for each position of its first input."""

    def forward(self, x, *arguments):
        return x.map(torch.zeros_like) if hasattr(x, "semantic") else torch.zeros_like(x)


def without_head(layer, head):
    """The layer with zeros as the weights of a head in its output projections."""
    changed = copy.deepcopy(layer)
    for module in changed.modules():
        if isinstance(module, OutputProjection):
            module.weight.data.unflatten(1, (NUM_HEADS, -1))[:, head] = 0
    return changed


def test_runs_of_every_kind_are_ablated(run_dir, kind):
    run = load(run_dir(kind))
    if run.settings.model.kind in ("lstm", "gpt2", "roberta"):
        with pytest.raises(UsageError, match="interventions are for transformers of structattn"):
            ablate(run)
        return
    found = ablate(run)
    (validation,) = events_of(RunFolder(run_dir(kind)).events, ["validation"])
    assert found.cross_entropy == pytest.approx(validation["cross_entropy"], rel=1e-5)
    places = [
        (getattr(block, name), name)
        for layers in layers_by_side(run.model).values()
        for block in layers.blocks
        for name in ("attention", "cross", "feedforward", "stack")
        if getattr(block, name)
    ]
    task = kind_of(run).build(run.prepared, run.settings)
    for each, (residual, name) in zip(found.sublayers, places, strict=True):
        layer = residual.layer
        assert (each.sublayer, each.module) == (name, type(layer).__name__)
        has_heads = any(isinstance(module, OutputProjection) for module in layer.modules())
        changed = [Nothing(), *(without_head(layer, head) for head in range(NUM_HEADS * has_heads))]
        for value, residual.layer in zip((each.whole, *each.heads), changed, strict=True):
            score = task.validate(run.model, lambda: None)
            assert value == pytest.approx(score.cross_entropy, rel=1e-6)
        residual.layer = layer
    assert found.cross_entropy == pytest.approx(task.validate(run.model, lambda: None).cross_entropy, rel=1e-12)


def test_an_ablation_is_printed_and_stored_and_stands_in_reports(run_dir, tmp_path, without_drawing):
    folder = shutil.copytree(run_dir("sentences"), tmp_path / "run")
    shown = succeed("inspect", folder, "--ablate")
    found = ablate(load(folder))
    (printed,) = json.loads(invoke("inspect", folder, folder, "--ablate", "--json").stdout)  # shown once
    assert printed["run"] == str(folder)
    assert printed["ablation"]["cross_entropy"] == found.cross_entropy
    stored = json.loads((folder / "analyses" / "ablation.json").read_text())
    assert stored["sublayers"] == printed["ablation"]["sublayers"]
    page = write_report([folder], tmp_path / "report").read_text()
    for each in found.sublayers:
        rises = [f"{value - found.cross_entropy:+z.4f}" for value in (each.whole, *each.heads)]
        row = rf"layer {each.layer + 1}, {each.sublayer}: {each.module}\W+" + r"\W+".join(map(re.escape, rises))
        assert re.search(row, shown.stdout)
        cells = "".join(rf"<td[^>]*>{re.escape(rise)}</td>" for rise in rises)
        assert re.search(rf"layer {each.layer + 1}, {each.sublayer}: {each.module}</th>{cells}", page)


def test_an_ablation_shows_nothing_else(run_dir, tmp_path):
    done = invoke("inspect", run_dir("sentences"), "--ablate", "--neighbours", "a")
    assert done.exit_code == 2
    assert "--ablate and --neighbours show different things" in done.stderr


def test_a_run_that_cannot_be_ablated_is_refused_before_others_are(run_dir, tmp_path):
    folder = shutil.copytree(run_dir("sentences"), tmp_path / "run")
    done = invoke("inspect", folder, run_dir("recurrent"), "--ablate")
    assert done.exit_code == 2
    assert "the model is a RecurrentLanguageModel" in done.stderr
    assert not (folder / "analyses" / "ablation.json").exists()
