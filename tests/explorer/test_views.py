"""Every view of runs of four kinds: its controls, its accessibility, and its layout at three widths, light and dark.

Layout is compared by boxes and computed colours: the pixels of text depend on the fonts of the machine.
"""

from dataclasses import replace

import pytest

VIEWS = {
    "formal language": ["Heat map", "Tokens", "Arcs", "Stack", "Receptive field", "Surprisal"],
    "language model": ["Heat map", "Tokens", "Arcs", "Stack", "Receptive field", "Surprisal"],
    "translation": ["Heat map", "Tokens", "Arcs", "Receptive field", "Surprisal"],
    "discrete transformer": ["Heat map", "Tokens", "Arcs", "Receptive field", "Surprisal"],
}
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
CORNER = """() => { const canvas = document.querySelector(".map canvas");
    return [...canvas.getContext("2d").getImageData(0, 0, 1, 1).data]; }"""
# Elements that are wider than their box scroll inside it; none may widen the page.
OUTSIDE = """() => [...document.querySelectorAll("#panel *, header *, [role=tablist]")].filter((element) => {
  if (element.closest(".map, .tree, .scroll, .wide-box, [role=tablist], .hidden")) return false;
  const box = element.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map((element) => element.outerHTML.slice(0, 80))"""


def violations(axe, page):
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]]) for each in axe.run(page).response["violations"]
    ]


def open_view(page, name):
    page.get_by_role("tab", name=name).click()
    page.wait_for_selector(f'[role=tab][aria-selected="true"]:text-is("{name}")')
    page.wait_for_selector("#panel .toolbar")  # it is there once the arrays are decoded


@pytest.mark.quick("formal language", "translation")
@pytest.mark.parametrize("kind", VIEWS)
def test_every_view_opens_without_a_fault_and_is_accessible(opened, recorded, axe, kind):
    page = opened([recorded(kind)])
    assert page.get_by_role("tab").all_text_contents() == VIEWS[kind]
    for name in VIEWS[kind]:
        open_view(page, name)
        assert violations(axe, page) == [], name


def test_views_without_content_are_not_offered(opened, recorded):
    found = recorded("formal language")
    example = found.examples[0]
    stacks = [replace(each, sublayer="stack") for each in example.records if each.action_names]  # a recurrent network
    recognized = replace(example, records=stacks, predicted=[None] * len(example.tokens))
    page = opened([replace(found, examples=[recognized])])
    assert page.get_by_role("tab").all_text_contents() == ["Heat map", "Tokens", "Arcs", "Stack"]


def test_two_runs_in_the_dark_are_accessible(opened, recorded, axe):
    page = opened([recorded("formal language"), recorded("formal language", 2)], color_scheme="dark")
    for name in page.get_by_role("tab").all_text_contents():
        open_view(page, name)
        assert violations(axe, page) == [], name


@pytest.mark.quick("formal language-light", "translation-dark")
@pytest.mark.parametrize("scheme", PAPER)
@pytest.mark.parametrize("kind", ["formal language", "translation"])
def test_no_view_is_wider_than_the_window(opened, recorded, kind, scheme):
    page = opened([recorded(kind)], color_scheme=scheme)
    for width in (400, 800, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        for name in VIEWS[kind]:
            open_view(page, name)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width, name
            assert page.evaluate(OUTSIDE) == [], name
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]


def test_the_theme_can_be_chosen_and_the_map_follows(opened, recorded):
    page = opened([recorded("formal language")], ignored="willReadFrequently", color_scheme="light")
    assert page.evaluate(CORNER) == [255, 255, 255, 255]
    page.get_by_role("combobox", name="Theme").select_option("dark")
    page.wait_for_function(f"() => ({CORNER})()[0] === 20")
    assert "theme=dark" in page.url
    page.get_by_role("combobox", name="Theme").select_option("system")
    page.wait_for_function(f"() => ({CORNER})()[0] === 255")


@pytest.mark.parametrize("theme", ["auto", "dark"])
def test_printing_hides_the_controls_and_is_light(opened, recorded, theme):
    page = opened([recorded("formal language")], f"theme={theme}", ignored="willReadFrequently", color_scheme="dark")
    assert page.evaluate(CORNER) == [20, 23, 28, 255]
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER["light"]
    page.wait_for_function(f"() => ({CORNER})()[0] === 255")
    assert not page.get_by_role("button", name="PNG").is_visible()
    assert not page.get_by_role("tablist").is_visible()


def test_the_keyboard_reaches_everything(opened, recorded):
    page = opened([recorded("formal language")])
    tab = page.get_by_role("tab", name="Heat map")
    tab.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "Tokens"
    assert page.get_by_role("tab", name="Tokens").get_attribute("aria-selected") == "true"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "Surprisal"
    page.keyboard.press("Home")
    seen = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate("(document.activeElement.ariaLabel ?? '') + document.activeElement.textContent.slice(0, 20)")
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body")
    assert {"PNG", "SVG", "JSON", "Full screen"} <= seen
    assert any("Arrow keys" in each for each in seen)


def test_a_link_shows_the_same(opened, recorded):
    page = opened([recorded("translation")])
    page.get_by_role("combobox", name="Example").select_option(index=1)
    page.get_by_role("combobox", name="Layer").select_option("Decoder layer 2: softmax, cross-attention")
    page.get_by_role("combobox", name="Head").select_option("2")
    open_view(page, "Arcs")
    page.get_by_role("group", name="Queries").get_by_role("button").first.click()
    shown, url = page.locator("#panel").inner_text(), page.url
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_selector("#panel .toolbar")
    assert page.locator("#panel").inner_text() == shown
    page.evaluate("location.hash = '#view=no-such&example=99&layer=x&head=-1&token=1e9'")
    page.wait_for_selector('[role=tab][aria-selected="true"]:text-is("Heat map")')


def test_full_screen(opened, recorded):
    page = opened([recorded("formal language")])
    page.get_by_role("button", name="Full screen").click()
    page.wait_for_function("() => document.fullscreenElement?.id === 'panel'")
    page.get_by_role("button", name="Full screen").click()
    page.wait_for_function("() => document.fullscreenElement === null")


@pytest.mark.parametrize(("kind", "tab"), [("formal language", "stack"), ("discrete transformer", "map")])
def test_a_page_opens_on_the_stack_if_there_is_one(opened, recorded, kind, tab):
    page = opened([recorded(kind)], None)
    page.wait_for_selector(f'#tab-{tab}[aria-selected="true"]')
    assert page.locator('[role="tab"][aria-selected="true"]').count() == 1
