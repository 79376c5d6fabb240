"""Explanations of text pairs in a report: both texts, self-attention and cross-attention maps."""

import pytest

from structattn.reporting import write_report
from structattn.support.json_files import write_json

SOURCE, TARGET = ["ein", "Hut", "<eos>"], ["<bos>", "a", "hat"]


def record(side, sublayer, layer, head, **changes):
    tokens = SOURCE if side == "encoder" else TARGET
    sources = SOURCE if sublayer == "cross" else tokens
    content = {"split": "test", "example": 4, "tokens": tokens, "sources": sources, "side": side, "layer": layer,
            "sublayer": sublayer, "head": head, "mechanism": "softmax",
            "weights": [[1 / len(sources)] * len(sources)] * len(tokens), **changes}  # fmt: skip
    return {key: value for key, value in content.items() if value is not None}


@pytest.fixture
def report_of(make_run, tmp_path):
    def make(records):
        run = make_run("mt", softmax_layers=())
        for path in (run / "records").iterdir():
            path.unlink()
        for number, content in enumerate(records):
            write_json(run / "records" / f"{number}.json", "record", content)
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
    stack = record("encoder", "attention", 1, None, mechanism="superposition", sources=["(bottom)", *SOURCE],
                   weights=[[1.0, 0, 0, 0]] * 3, actions=[[1.0, 0, 0]] * 3,
                   action_names=["push", "no-op", "pop"])  # fmt: skip
    page, maps = report_of([stack, record("decoder", "cross", 0, None)])
    assert maps == {"example-1-encoder-layer-2", "example-1-cross"}
    assert "mt, encoder layer 2. Superposition stack" in page


def test_the_receptive_fields_of_a_pair_are_one_figure(report_of):
    fields = [
        record("decoder", sublayer, 1, None, mechanism="receptive_field", sources=sources, weights=[[1.0] * size] * 3)
        for sublayer, sources, size in (
            ("receptive-field", TARGET, 3),
            ("source-receptive-field", [*SOURCE, "<eos>"], 4),
        )
    ]
    page, maps = report_of([*fields, record("decoder", "cross", 0, None)])
    assert maps == {"example-1-receptive-field", "example-1-cross"}
    assert "the target and source inputs (columns) that each prediction of a token (rows) depends on" in page


def test_the_source_is_taken_from_cross_attention(report_of):
    page, maps = report_of([record("decoder", "cross", 0, None)])
    assert maps == {"example-1-cross"}
    assert ">ein Hut ◁</p>" in page
