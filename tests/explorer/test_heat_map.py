"""The heat map in a browser."""

import numpy as np
import pytest

KINDS = ["formal language", "language model", "translation", "discrete transformer"]


@pytest.mark.quick("language model", "discrete transformer")
@pytest.mark.parametrize("kind", KINDS)
def test_values_under_the_pointer_are_those_of_the_record(opened, recorded, heat_map, kind):
    found = recorded(kind)
    page = opened([found])
    weights = found.examples[0].records[0].weights.astype(np.float32)
    with heat_map(page) as cells:
        for row, column in {(0, 0), (1, 0), (weights.shape[0] - 1, weights.shape[1] - 1)}:
            page.mouse.move(*cells.at(row, column))
            page.wait_for_selector(f'.readout[data-row="{row}"][data-column="{column}"]')
            assert np.float32(cells.value.text_content()) == weights[row, column]


def test_every_layer_and_head_can_be_chosen(opened, recorded, heat_map):
    found = recorded("translation")
    page = opened([found])
    layers = page.get_by_role("combobox", name="Layer")
    labels = layers.locator("option").all_text_contents()
    assert "Decoder layer 1: softmax, cross-attention" in labels
    layers.select_option("Decoder layer 1: softmax, cross-attention")
    page.get_by_role("combobox", name="Head").select_option("2")
    (record,) = (each for each in found.examples[0].records
                 if (each.side, each.sublayer, each.layer, each.head) == ("decoder", "cross", 0, 1))  # fmt: skip
    with heat_map(page) as cells:
        page.mouse.move(*cells.at(1, 2))
        page.wait_for_selector('.readout[data-row="1"][data-column="2"]')
        assert np.float32(cells.value.text_content()) == np.float32(record.weights[1, 2])
    assert "layer=decoder-1-cross" in page.url
    assert "head=2" in page.url


def test_arrow_keys_move_the_cell_and_are_announced(opened, recorded):
    found = recorded("formal language")
    page = opened([found], "token=2&key=1")
    page.get_by_role("application").press("ArrowDown")
    page.wait_for_selector('.readout[data-row="2"][data-column="0"]')
    assert "token=3" in page.url
    value = found.examples[0].records[0].weights.astype(np.float32)[2, 0]
    said = page.get_by_role("status").text_content()
    assert np.float32(said.rsplit(": ", 1)[1]) == value
