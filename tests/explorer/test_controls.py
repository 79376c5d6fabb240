"""Every control of every view is used: selections, sliders and check boxes; `opened` fails if the page has an error."""

import pytest

KINDS = ["formal language", "language model", "translation", "discrete transformer"]
PIXELS = """() => { const canvas = document.querySelector(".map canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let sum = 0; for (const value of data) sum = (31 * sum + value) % 1000003; return sum; }"""


def open_view(page, name):
    page.get_by_role("tab", name=name).click()
    page.wait_for_selector(f'[role=tab][aria-selected="true"]:text-is("{name}")')
    page.wait_for_selector("#panel .toolbar")


@pytest.mark.quick("formal language")
@pytest.mark.parametrize("kind", KINDS)
def test_every_control_can_be_used(opened, recorded, kind):
    page = opened([recorded(kind)])
    used = set()
    for view in page.get_by_role("tab").all_text_contents():
        open_view(page, view)
        for number in range(page.locator("#panel select").count()):
            select = page.locator("#panel select").nth(number)
            values = select.locator("option").evaluate_all("(all) => all.map((each) => each.value)")
            for value in (values[-1], values[0]):
                select.select_option(value)
                page.wait_for_selector("#panel .toolbar")
                assert select.input_value() == value, view
            used.add("select")
        for number in range(page.locator("#panel input[type=range]").count()):
            slider = page.locator("#panel input[type=range]").nth(number)
            for key, end in (("Home", "min"), ("End", "max")):
                slider.press(key)
                page.wait_for_selector("#panel .toolbar")
                assert float(slider.input_value()) == pytest.approx(float(slider.get_attribute(end)), abs=0.01), view
            used.add("range")
        for number in range(page.locator("#panel input[type=checkbox]").count()):
            box = page.locator("#panel input[type=checkbox]").nth(number)
            before = box.is_checked()
            box.click()
            assert box.is_checked() != before, view
            used.add("checkbox")
    assert {"select", "range"} <= used


def test_the_scale_of_colours_changes_the_map(opened, recorded):
    page = opened([recorded("language model")], ignored="willReadFrequently")
    drawn = page.evaluate(PIXELS)
    page.get_by_role("combobox", name="Colours").select_option("sqrt")
    page.wait_for_function(f"(before) => ({PIXELS})() !== before", arg=drawn)


def test_the_size_of_cells_changes_the_map(opened, recorded):
    page = opened([recorded("language model")])
    cells = page.get_by_role("combobox", name="Cells")
    cells.select_option("4")
    small = page.locator(".map").bounding_box()["height"]
    cells.select_option("28")
    page.wait_for_function("(before) => document.querySelector('.map').scrollHeight > before", arg=small)


def test_fewer_inputs_are_reached_with_larger_weights(opened, recorded):
    page = opened([recorded("formal language")], "view=field")
    slider = page.get_by_role("slider", name="Weights from")

    def reached():
        return int(page.locator("#panel .readout").inner_text().split()[0])

    slider.press("Home")
    many = reached()
    assert page.locator("[role=treeitem][aria-label*='heads s1']").count() > 0  # a stack is not head 1 of its layer
    slider.press("End")
    page.wait_for_function("() => document.querySelector('#panel .count').textContent === '1.00'")
    assert reached() <= many
    page.get_by_role("combobox", name="Output at").select_option("1")
    page.wait_for_function("() => document.querySelector('#panel .readout').textContent.startsWith('1 of')")


@pytest.mark.parametrize("view", ["map", "surprisal", "field"])
def test_what_is_pointed_at_may_be_missing_in_the_next_example(opened, recorded, heat_map, view):
    page = opened([recorded("language model")], f"view={view}")
    example = page.get_by_role("combobox", name="Example")
    for number in ("2", "1"):  # both are decoded, so that the view stays
        example.select_option(number)
        page.wait_for_selector("#panel .toolbar")
    if view == "map":
        with heat_map(page) as drawn:
            page.mouse.move(*drawn.at(3, 3))
    elif view == "field":
        page.get_by_role("treeitem").last.click()
    else:
        page.locator(".token").last.hover()
    readout = page.locator(".readout")
    pointed = readout.inner_text()
    assert pointed.startswith("ran") or view == "surprisal"
    example.select_option("2")
    changed = "(before) => document.querySelector('.readout').innerText !== before"
    page.wait_for_function(changed, arg=pointed, timeout=30_000)
