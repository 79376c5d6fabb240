"""Two runs side by side."""

from dataclasses import replace

import numpy as np
import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright").expect


def test_both_runs_follow_one_selection(opened, recorded, heat_map):
    runs = [recorded("formal language"), recorded("formal language", 2)]
    page = opened(runs)
    with heat_map(page) as cells:
        page.mouse.click(*cells.at(3, 1))
    for run, found in enumerate(runs):
        readout = page.locator(".readout").nth(run)
        expect(readout).to_have_attribute("data-row", "3")
        weights = found.examples[0].records[0].weights.astype(np.float32)
        assert np.float32(readout.locator(".value").text_content()) == weights[3, 1]
    page.get_by_role("combobox", name="Head of run 2").select_option("2")
    expect(page.locator(".readout").nth(1).locator(".value")).not_to_have_text("")
    assert "head2=2" in page.url


def test_differences_are_those_of_the_records(opened, recorded):
    runs = [recorded("formal language"), recorded("formal language", 2)]
    page = opened(runs, "view=differences&layer=2-attention&layer2=2-attention")
    one, other = (run.examples[0].records[2] for run in runs)
    canvas = page.get_by_role("application", name="Differences of weights")
    canvas.press("ArrowDown")
    canvas.press("ArrowRight")
    expect(page.locator('.readout[data-row="1"][data-column="1"]')).to_be_visible()
    shown = page.locator(".readout .value").text_content()
    expected = np.float32(one.weights[1, 1]) - np.float32(other.weights[1, 1])
    assert abs(float(shown.replace("−", "-").lstrip("<>")) - expected) <= 0.0011
    differing = (one.actions.argmax(1) != other.actions.argmax(1)).sum()
    expect(page.get_by_role("group", name="Actions", exact=True).locator("tbody tr")).to_have_count(int(differing))
    assert page.locator(".token.marked").count() == 0


def test_tokens_of_one_run_only_are_marked(opened, recorded):
    one = recorded("language model")
    example = one.examples[0]
    tokens = (*example.tokens[:2], "DOG", *example.tokens[3:])
    predicted = (*example.predicted[:1], "DOG", *example.predicted[2:])
    changed = replace(
        one, examples=(replace(example, tokens=tokens, predicted=predicted, records=()), *one.examples[1:])
    )
    page = opened([one, changed], "view=differences")
    marked = page.locator(".token.marked bdi")
    assert sorted(marked.all_text_contents()) == sorted([example.tokens[2], "DOG"])
