"""Views saved as JSON, SVG and PNG."""

from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

VIEWS = ["map", "tokens", "arcs", "stack", "field", "surprisal"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.quick("map", "stack", "field")
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_saved_as_svg_and_png(opened, recorded, downloaded, view):
    page = opened([recorded("formal language")], f"view={view}&layer=2-attention")
    drawing = ElementTree.fromstring(downloaded(page, "SVG"))
    assert drawing.tag == f"{SVG}svg"
    tags = {each.tag for each in drawing.iter()}
    assert f"{SVG}text" in tags
    assert not tags & {f"{SVG}script", f"{SVG}foreignObject"}
    picture = Image.open(BytesIO(downloaded(page, "PNG")))
    size = np.array([float(drawing.get("width")), float(drawing.get("height"))])
    np.testing.assert_allclose(picture.size, 2 * size, atol=2)
    colours = {each.get(name, "") for each in drawing.iter() for name in ("fill", "stroke")}
    assert not [each for each in colours if each.startswith(("color(", "rgba"))]
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 10


def test_the_drawing_has_the_colours_of_the_page(opened, recorded, downloaded):
    page = opened([recorded("formal language")], "view=stack")
    fills = {each.get("fill") for each in ElementTree.fromstring(downloaded(page, "SVG")).iter(f"{SVG}rect")}
    shown = page.locator(".actions .swatch").evaluate_all("all => all.map((e) => getComputedStyle(e).backgroundColor)")
    assert len(shown) == 3
    assert set(shown) <= fills


def test_json_holds_the_numbers(opened, recorded, searched, downloaded):
    found = recorded("formal language")
    example, records = found.examples[0], found.examples[0].records
    (stack,) = (each for each in records if each.contents is not None)
    page = opened([found], "token=3")
    saved = downloaded(page, "JSON")
    assert (saved["view"], saved["run"]["name"], saved["record"]["mechanism"]) == ("map", found.run["name"], "softmax")
    np.testing.assert_array_equal(np.float32(saved["weights"]), records[0].weights.astype(np.float32))
    page.get_by_role("tab", name="Stack").click()
    page.wait_for_selector(".stack")
    saved = downloaded(page, "JSON")
    np.testing.assert_array_equal(np.float32(saved["actions"]), stack.actions.astype(np.float32))
    assert saved["best_run"] == stack.best_run.tolist()
    for cell in saved["contents"]:
        np.testing.assert_array_equal(
            np.float32(cell["positions"]), stack.contents.positions[2, cell["depth"] - 1].astype(np.float32)
        )
    page.get_by_role("tab", name="Surprisal").click()
    page.wait_for_selector(".facts")
    saved = downloaded(page, "JSON")["tokens"]
    np.testing.assert_array_equal(np.float32([each["surprisal"] for each in saved[1:]]), np.float32(example.surprisal))
    saved = downloaded(opened([searched], "view=beam"), "JSON")
    assert saved["parents"] == list(searched.examples[0].beam_search.parents)
