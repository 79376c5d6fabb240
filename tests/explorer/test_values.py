"""What the views show equals the record, to float32."""

from dataclasses import replace

import numpy as np
import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright").expect


def number(locator):
    return np.float32(locator.text_content())


def test_tokens_are_coloured_by_the_selected_one(opened, recorded):
    found = recorded("formal language")
    weights = found.examples[0].records[0].weights.astype(np.float32)
    page = opened([found], "view=tokens&token=4")
    tokens = page.locator(".token")
    for column in (0, 2):
        tokens.nth(column).hover()
        assert number(page.locator(f'.value[data-index="{column}"]')) == weights[3, column]
    shares = [float(each.evaluate("e => parseFloat(e.style.getPropertyValue('--part'))")) for each in tokens.all()]
    np.testing.assert_allclose(shares, np.round(50 * weights[3] / weights[3].max()), atol=1)
    tokens.nth(3).press("ArrowRight")
    assert "token=5" in page.url
    page.get_by_role("combobox", name="Show").select_option("what attends to the selected token")
    tokens.nth(5).hover()
    assert number(page.locator('.value[data-index="5"]')) == weights[5, 4]


def test_keys_are_coloured_by_the_selected_query(opened, recorded):
    found = recorded("translation")
    (record,) = (each for each in found.examples[0].records
                 if (each.side, each.sublayer, each.layer, each.head) == ("decoder", "cross", 0, 0))  # fmt: skip
    page = opened([found], "view=tokens&layer=decoder-1-cross")
    queries, keys = page.locator(".tokens").all()
    queries.get_by_role("button").nth(1).click()
    keys.get_by_role("button").nth(2).hover()
    assert number(page.locator('.value[data-index="2"]')) == np.float32(record.weights[1, 2])


def test_arcs_are_those_of_the_threshold(opened, recorded):
    found = recorded("discrete transformer")
    weights = found.examples[0].records[0].weights
    page = opened([found], "view=arcs&from=0.5")
    expect(page.locator(".arc")).to_have_count(int((weights >= 0.5).sum()))
    page.get_by_role("slider").fill("1")
    expect(page.locator(".arc")).to_have_count(int((weights >= 1).sum()))
    page.get_by_role("group", name="Queries").get_by_role("button").nth(3).click()
    expect(page.locator(".arc.own")).to_have_count(int((weights[3] >= 1).sum()))


@pytest.mark.parametrize("kind", ["formal language", "language model"])
def test_the_stack_at_each_step(opened, recorded, kind):
    found = recorded(kind)
    (record,) = (each for each in found.examples[0].records if each.contents is not None)
    page = opened([found], "view=stack&token=1")
    slider = page.get_by_role("slider", name="Step")
    for step in range(len(record.tokens)):
        assert slider.input_value() == str(step + 1)
        actions = record.actions if record.prefix_actions is None else record.prefix_actions
        for action, value in zip(page.locator("[data-action]").all(), actions[step], strict=True):
            assert number(action) == np.float32(value)
        assert number(page.locator("[data-name=height]")) == np.float32(record.contents.height[step])
        expected = record.contents.at_least[step].astype(np.float32)
        shown = [number(each) for each in page.locator(".contents .at-least").all()]
        np.testing.assert_array_equal(shown, expected[expected > 0.0005])
        if record.contents.symbols is not None:
            symbols = page.locator(".contents .symbol").all_text_contents()
            assert symbols == [str(row.argmax()) for row in record.contents.symbols[step, : len(shown)]]
        slider.press("ArrowRight")
    page.locator(".timeline").click(position={"x": 2, "y": 60})
    expect(slider).to_have_value("1")


def test_the_most_probable_run_is_traced(opened, recorded):
    found = recorded("formal language")
    (record,) = (each for each in found.examples[0].records if each.best_run is not None)
    page = opened([found], "view=stack&token=1&runs=whole")
    height = 1
    for action, state, symbol in record.best_run.tolist():
        height += {0: 1, 1: 0, 2: -1}[action]
        trace = page.get_by_role("group", name="Most probable run")
        expect(trace.locator(".cell")).to_have_count(height)
        expect(trace.locator(".cell .symbol").first).to_have_text(str(symbol))
        assert f"state {state}" in trace.inner_text()
        page.get_by_role("slider", name="Step").press("ArrowRight")


def test_the_top_of_each_prefix_is_named(opened, recorded):
    found = recorded("formal language")
    (record,) = (each for each in found.examples[0].records if each.prefix_tops is not None)
    page = opened([found], "view=stack&token=1")
    for state, symbol in record.prefix_tops.tolist():
        assert page.locator("[data-name=state]").inner_text() == str(state)
        assert page.locator("[data-name=symbol]").inner_text() == str(symbol)
        page.get_by_role("slider", name="Step").press("ArrowRight")
    page.get_by_role("combobox", name="Runs").select_option("whole")
    expect(page.get_by_role("group", name="Most probable run")).to_have_count(1)


def test_surprisals_stand_under_their_tokens(opened, recorded):
    found = recorded("language model")
    example = found.examples[0]
    page = opened([found], "view=surprisal")
    cells = page.locator(".token")
    assert cells.locator("bdi").all_text_contents() == ["<bos>", *example.predicted]
    for index, value in enumerate(example.surprisal, start=1):
        cells.nth(index).hover()
        assert number(page.locator(".readout .value")) == np.float32(value)
    assert f"{example.surprisal.sum():.3f}" in page.locator(".facts").inner_text()


def test_the_tree_reaches_the_receptive_field(opened, recorded):
    found = recorded("discrete transformer")
    example = found.examples[0]
    (field,) = (each for each in example.records if each.mechanism == "receptive_field")
    for row in (2, len(example.tokens) - 1):
        page = opened([found], f"view=field&least=0.5&token={row + 1}")
        leaves = page.locator("[role=treeitem][aria-label*=', input']").all()
        reached = {int(each.get_attribute("aria-label").split("position ")[1].split(",")[0]) - 1 for each in leaves}
        assert reached == set(np.flatnonzero(field.weights[row] > 0).tolist())
    page.get_by_role("treeitem").first.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "1"


def test_labels_of_trees_end_before_the_next_column(opened, searched):
    example = searched.examples[0]
    wide = replace(example.beam_search, tokens=["W" * 10] * len(example.beam_search.tokens))
    page = opened([replace(searched, examples=[replace(example, beam_search=wide)])], "view=beam")
    ends = """nodes => nodes.map(node => [node.querySelector("circle").getBoundingClientRect().left,
        node.querySelector("text").getBoundingClientRect().right])"""
    boxes = page.locator(".node").evaluate_all(ends)
    starts = sorted({round(left) for left, _ in boxes})
    assert all(min((x for x in starts if x > left + 1), default=right) >= right for left, right in boxes)


def test_the_beam_is_a_tree_of_log_probabilities(opened, searched):
    search = searched.examples[0].beam_search
    page = opened([searched], "view=beam")
    expect(page.get_by_role("treeitem")).to_have_count(len(search.tokens))
    readout = page.locator(f'.readout[data-node="{search.best}"]')
    assert number(readout.locator(".value")) == np.float32(search.log_probabilities[search.best])
    path, node = 0, search.best
    while node >= 0:
        path, node = path + 1, search.parents[node]
    expect(page.locator(".node.strong")).to_have_count(path)
    page.get_by_role("treeitem").first.press("ArrowRight")
    shown = int(page.locator(".readout").get_attribute("data-node"))
    assert search.parents[shown] == 0
    assert number(page.locator(".readout .value")) == np.float32(search.log_probabilities[shown])
