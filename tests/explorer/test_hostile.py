"""Tokens that try to run, to reorder the page or to stop it; arrays that cannot be read; scripts of all directions."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from structattn.explorer.recording_files import recording_to_json

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; pip install playwright").expect

HOSTILE = [
    "<script>window.ran = 1</script>",
    "</script><script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "a\u2028b\u2029c",
    "\u202eevil\u2066",
    "\x00\x07\x1b[31m",
    "\ud800",
    "é" * 3 + "\u0301" * 5000,
    "x" * 1_000_000,
    "👩‍👩‍👧‍👦" * 200_000,
    "&lt;b&gt;\"'",
    "javascript:window.ran=1",
    "",
    "  ",
]
VIEWS = ["map", "tokens", "arcs", "stack", "field", "surprisal"]


def renamed(recording, names):
    """Give the first example other tokens, repeated to its length."""
    example = recording.examples[0]
    tokens = tuple(names[index % len(names)] for index in range(len(example.tokens)))
    predicted = (*tokens[1:], tokens[0])
    records = tuple(
        replace(each, tokens=tokens, sources=("(bottom)", *tokens) if len(each.sources) > len(tokens) else tokens)
        for each in example.records
    )
    changed = replace(example, tokens=tokens, predicted=predicted, records=records)
    return replace(recording, examples=(changed, *recording.examples[1:]), run={**recording.run, "name": names[0]})


@pytest.mark.parametrize("start", range(0, len(HOSTILE), 7))
def test_hostile_tokens_are_text(opened, recorded, start):
    found = renamed(recorded("formal language"), HOSTILE[start : start + 7])
    page = opened([found])
    for view in VIEWS:
        page.evaluate(f"location.hash = '#view={view}&layer=2-attention'")
        page.wait_for_selector(f'#tab-{view}[aria-selected="true"]')
        page.wait_for_selector("#panel .toolbar")
        assert page.evaluate("window.ran") is None
        assert page.evaluate("document.querySelectorAll('#explorer script, #explorer img').length") == 0
        assert page.evaluate("document.querySelector('#panel').textContent.length") < 20_000
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 1200
        assert page.evaluate(r"/[\u202a-\u202e\u2066-\u2069\u2028\u2029]/.test(document.body.innerText)") is False


WIDE = ["W" * 16, "zero\u200bwidth\u200b" * 2]


@pytest.mark.parametrize("token", [2, 3])
def test_wide_tokens_do_not_widen_a_narrow_page(opened, recorded, token):
    page = opened([renamed(recorded("formal language"), WIDE)], viewport={"width": 400, "height": 800})
    label = page.get_by_role("combobox", name="Example").locator("option").first.text_content()
    assert label.endswith("…")
    assert len(label) == 73
    for view in VIEWS:
        page.evaluate(f"location.hash = '#view={view}&layer=2-attention&token={token}'")
        page.wait_for_selector(f'#tab-{view}[aria-selected="true"]')
        page.wait_for_selector("#panel .toolbar")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400, view


def test_labels_of_steps_are_cut_at_their_end_and_do_not_overlap(opened, recorded):
    found = renamed(recorded("formal language"), WIDE)
    page = opened([found], "view=stack&token=4", viewport={"width": 130, "height": 800})
    edge = page.locator(".timeline").bounding_box()
    labels = page.locator(".timeline .label")
    assert labels.first.text_content().startswith("WW")
    boxes = [each.bounding_box() for each in labels.all()]
    assert 2 < len(boxes) < len(found.examples[0].tokens)
    assert max(box["y"] + box["height"] for box in boxes) <= edge["y"] + edge["height"]
    assert min(after["x"] - before["x"] for before, after in pairwise(boxes)) >= 13  # pixels, the height of a line


def test_a_long_token_is_shown_whole_on_demand(opened, recorded, downloaded):
    page = opened([renamed(recorded("formal language"), ["x" * 999_999 + "y"])])
    page.get_by_text("Whole token, 1,000,000 characters").click()
    part = page.get_by_role("textbox", name="Whole token")
    expect(part).to_have_value("x" * 5000)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("5,001 to 10,000")).to_be_visible()
    assert downloaded(page, "Save the token") == b"x" * 999_999 + b"y"


@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("document.body.setAttribute('onclick', 'window.ran = 1')", "TrustedScript"),
        ("document.body.insertAdjacentHTML('beforeend', '<img src=x>')", "TrustedHTML"),
    ],
)
def test_the_policy_stops_what_the_escapes_would_let_through(opened, recorded, action, name):
    page = opened([recorded("formal language")], ignored="require-trusted-types|TrustedScript|TrustedHTML")
    with pytest.raises(Exception, match=name):
        page.evaluate(action)


def test_an_array_that_cannot_be_read_is_reported(opened, recorded):
    content = recording_to_json(recorded("formal language"))
    content["arrays"][content["examples"][0]["records"][0]["weights"]["array"]] = "AAAA"
    page = opened([content])
    expect(page.get_by_role("alert")).to_contain_text("cannot be read")
    page.get_by_role("combobox", name="Head").select_option("2")
    page.wait_for_selector(".readout")


@pytest.mark.parametrize(
    ("words", "direction"),
    [
        (["الكلب", "الذي", "طارد", "القطة"], "rtl"),
        (["我们", "喜欢", "神经", "网络"], "ltr"),
        (["ক", "👩‍👩‍👧‍👦", "ñ", "नमस्ते"], "ltr"),
    ],
)
def test_scripts_of_all_directions(opened, recorded, words, direction):
    page = opened([renamed(recorded("language model"), words)], "view=tokens", viewport={"width": 400, "height": 800})
    shown = page.locator(".tokens .token bdi")
    assert shown.first.text_content() == words[0]
    assert page.locator(".tokens").evaluate("e => getComputedStyle(e).direction") == direction
    boxes = [each.bounding_box()["x"] for each in shown.all()[:2]]
    assert (boxes[0] > boxes[1]) == (direction == "rtl")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 400


def test_1024_tokens_are_shown_and_decoded_on_demand(opened, recorded):
    found = recorded("discrete transformer")
    generator = np.random.default_rng(3)
    tokens = tuple(f"w{index}" for index in range(1024))
    heads = found.examples[0].records[:2]
    weights = [np.tril(generator.random((1024, 1024), dtype=np.float32)) for _ in heads]
    records = tuple(
        replace(head, tokens=tokens, sources=tokens, weights=each, truth=None)
        for head, each in zip(heads, weights, strict=True)
    )
    surprisal = generator.random(1024)
    example = replace(found.examples[0], tokens=tokens, predicted=tokens, surprisal=surprisal, records=records)
    page = opened([replace(found, examples=(example,))], "token=900&key=17")
    value = page.locator(".readout .value")
    assert np.float32(value.text_content()) == weights[0][899, 16]
    page.get_by_role("combobox", name="Head").select_option("2")
    expect(value).not_to_have_text(str(weights[0][899, 16]))
    assert np.float32(value.text_content()) == weights[1][899, 16]
    page.get_by_role("application").press("ArrowDown")
    expect(page.locator(".readout")).to_have_attribute("data-row", "900")
    for view in ("tokens", "arcs", "surprisal"):
        page.locator(f"#tab-{view}").click()
        page.wait_for_selector("#panel .toolbar")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 1200
