"""Every mechanism has an entry and a builder."""

from typing import get_args

import pytest

from structattn.models.builders.mechanisms import CROSS_BUILDERS, HEADS_BUILDERS, STACK_BUILDERS
from structattn.models.builders.recurrent import RECURRENT_BUILDERS
from structattn.settings.layers import AddedStack, CrossAttention, Layer, layers_from_short
from structattn.settings.mechanisms import (
    MECHANISMS,
    CrossGaussian,
    Gaussian,
    Mechanism,
    NoAttention,
    RecurrentSuperposition,
    describe_mechanism,
)
from structattn.settings.recurrent import RecurrentStackSettings


def members(union):
    return list(get_args(get_args(union)[0]))


def test_entries_and_builders_have_the_same_settings_classes():
    built = {*STACK_BUILDERS, *HEADS_BUILDERS, *CROSS_BUILDERS, *RECURRENT_BUILDERS}
    assert built - {CrossGaussian, RecurrentSuperposition} == {entry.settings for entry in MECHANISMS.values()} - {
        NoAttention
    }


@pytest.mark.parametrize(
    ("union", "builders"),
    [
        (Layer, {**STACK_BUILDERS, **HEADS_BUILDERS}),
        (AddedStack, STACK_BUILDERS),
        (CrossAttention, CROSS_BUILDERS),
        (RecurrentStackSettings, RECURRENT_BUILDERS),
    ],
)
def test_every_mechanism_of_a_union_has_a_builder(union, builders):
    kinds = [kind for kind in members(union) if not issubclass(kind, NoAttention)]
    assert {next(base for base in kind.__mro__ if base in builders) for kind in kinds} == set(builders)


def test_a_new_entry_has_a_short_form_and_a_description(monkeypatch):
    class Toy(Gaussian):
        attention: str = "toy"

    entry = Mechanism(Toy, sizes=("window",), label="toy attention")
    monkeypatch.setattr(Mechanism, "name", property(lambda self: "toy" if self is entry else "other"))
    monkeypatch.setattr("structattn.settings.mechanisms.MECHANISMS", {"toy": entry})
    monkeypatch.setattr("structattn.settings.layers.MECHANISMS", {"toy": entry})
    assert layers_from_short("2xtoy-5") == [{"attention": "toy", "window": 5}] * 2
    assert describe_mechanism(Toy(window=5)) == "toy attention 5"
