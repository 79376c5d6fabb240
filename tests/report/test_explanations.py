"""Explanations of text pairs in a report: both texts, self-attention and cross-attention maps."""

import numpy as np
import pytest

from structattn.cli.report_page import write_report
from structattn.loading.records import BOTTOM, Record

pytestmark = pytest.mark.usefixtures("without_drawing")
SOURCE, TARGET = ("ein", "Hut", "<eos>"), ("<bos>", "a", "hat")


def record(side, sublayer, layer, head, **changes):
    tokens = SOURCE if side == "encoder" else TARGET
    sources = changes.pop("sources", SOURCE if sublayer == "cross" else tokens)
    weights = np.full((len(tokens), len(sources)), 1 / len(sources))
    mechanism = changes.pop("mechanism", "softmax")
    return Record(tokens, layer, sublayer, head, mechanism, weights, sources, side=side, **changes)


@pytest.fixture
def report_of(make_run, write_examples, tmp_path):
    def make(records):
        run = make_run("mt", softmax_layers=())
        write_examples(run, (TARGET, records, SOURCE))
        page = write_report([run], tmp_path / "out")
        maps = {path.stem for path in page.parent.glob("figures/*.png") if "example" in path.stem}
        return page.read_text(), {stem.removeprefix("run-1-mt-") for stem in maps}

    return make


def test_a_pair_shows_both_texts_and_three_figures(report_of):
    records = [record(*name, 0, head) for head in (0, 1)
               for name in (("decoder", "attention"), ("decoder", "cross"), ("encoder", "attention"))]  # fmt: skip
    page, maps = report_of(records)
    assert maps == {"example-1-encoder", "example-1-decoder", "example-1-cross"}
    assert page.index(">ein Hut ◁</p>") < page.index(">▷ a hat</p>")
    assert "softmax attention from the target (teacher forcing) to the source" in page


def test_a_stack_is_drawn_with_its_actions(report_of):
    actions = np.array([[1.0, 0, 0]] * 3)
    stack = record(
        "encoder", "attention", 1, None, mechanism="superposition", sources=(BOTTOM, *SOURCE), actions=actions
    )
    page, maps = report_of([stack, record("decoder", "cross", 0, None)])
    assert maps == {"example-1-encoder-layer-2", "example-1-cross"}
    assert "mt, encoder layer 2. Superposition stack" in page


def test_each_of_several_stacks_is_drawn(report_of):
    actions = np.array([[1.0, 0, 0]] * 3)
    stacks = [record("encoder", "attention", 1, head, mechanism="superposition", actions=actions) for head in (0, 1)]
    page, maps = report_of([*stacks, record("decoder", "cross", 0, None)])
    assert maps == {"example-1-encoder-layer-2-head-1", "example-1-encoder-layer-2-head-2", "example-1-cross"}
    assert "mt, encoder layer 2, head 2. Superposition stack" in page


def test_the_receptive_fields_of_a_pair_are_one_figure(report_of):
    fields = [
        record("decoder", sublayer, 1, None, mechanism="receptive_field", sources=sources)
        for sublayer, sources in (("receptive-field", TARGET), ("source-receptive-field", SOURCE))
    ]
    page, maps = report_of([*fields, record("decoder", "cross", 0, None)])
    assert maps == {"example-1-receptive-field", "example-1-cross"}
    assert "the target and source inputs (columns) that each prediction of a token (rows) depends on" in page


def test_an_example_that_two_files_hold_is_shown_once(make_run, write_examples, tmp_path):
    run = make_run("mt", softmax_layers=())
    for name in ("test", "again"):
        write_examples(run, (TARGET, [record("decoder", "cross", 0, None)], SOURCE), name=name)
    page = write_report([run], tmp_path / "out").read_text()
    assert page.count(">▷ a hat</p>") == 1
