"""Short form of layers: ``2.nondeterministic-2-3-5.2``, ``5+stack_pointer``, ``4xnone.softmax-1``."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from structattn.settings.base import MAX_LAYERS, did_you_mean
from structattn.settings.mechanisms import MECHANISMS, Mechanism

_LETTERS: Mapping[str, str] = MappingProxyType(
    {"num_heads": "h", "stack_embedding_size": "m", "num_states": "Q", "stack_alphabet_size": "S"}
)
_NUMBER = "[0-9]+"


def layers_from_short(value: object) -> object:
    """Convert the short form of layers to a list of mappings; return values other than str and int unchanged.

    Parts are separated by dots. A number means that many softmax layers. A name, followed by sizes after hyphens, means
    one layer (``superposition-m``, ``nondeterministic-Q-S-m``, ``softmax-h`` with h heads); the prefix ``3x`` means
    three of them. ``+`` adds a stack after the feed-forward sublayer: ``5+stack_pointer``. ``stack_pointer`` alone
    means ``softmax+stack_pointer``, the layer of its paper.

    Raises:
        ValueError: the text is not a valid short form, or has more than ``MAX_LAYERS`` layers.
    """
    if isinstance(value, float):  # YAML has already turned 2.10 into 2.1
        raise ValueError(f"YAML reads {value} as a number; put the layers in quotes, or write their sum")
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return value
    parts = [_layers_of_part(part, text) for part in text.split(".")]
    total = sum(count for count, _ in parts)
    if total > MAX_LAYERS:  # before so many layers are made
        raise ValueError(f"{total} layers; expected at most {MAX_LAYERS}")
    return [dict(layer) for count, layer in parts for _ in range(count)]


def mechanism_from_short(value: object) -> object:
    """Convert the short form of one mechanism, ``superposition-10``, to a mapping; return other values unchanged.

    Raises:
        ValueError: the text is not a valid short form.
    """
    return _mechanism(value, value) if isinstance(value, str) else value


def _layers_of_part(part: str, text: str) -> tuple[int, dict[str, Any]]:
    """Return the number of layers that a part means, and one of them."""
    body, plus, stack = part.partition("+")
    if re.fullmatch(_NUMBER, body):
        count, name = body, "softmax"
    else:
        found = re.fullmatch(f"(?:({_NUMBER})x)?(.*)", body, re.DOTALL)
        count, name = (found[1] or "1", found[2]) if found else ("1", body)
    if name == "stack_pointer" and not plus:
        name, plus, stack = "softmax", "+", "stack_pointer"
    added = {"stack": _mechanism(stack, text)} if plus else {}
    return int(count), _mechanism(name, text) | added


def _mechanism(part: str, text: str) -> dict[str, Any]:
    name, *sizes = part.split("-")
    entry = MECHANISMS.get(name)
    if entry is None:
        expected = f"expected a number of softmax layers or one of {', '.join(sorted(MECHANISMS))}"
        raise ValueError(f"{part!r} in {text!r}: {expected}{did_you_mean(name, MECHANISMS)}")
    choices = _sizes(entry)
    fields = next((choice for choice in choices if len(choice) == len(sizes)), None)
    if fields is None or not all(re.fullmatch(_NUMBER, size) for size in sizes):
        forms = " or ".join("-".join([name, *(_LETTERS.get(each, each) for each in choice)]) for choice in choices)
        raise ValueError(f"{part!r} in {text!r}: expected {forms}, with numbers")
    return {"attention": name, **{field: int(size) for field, size in zip(fields, sizes, strict=True)}}


def _sizes(entry: Mechanism) -> list[tuple[str, ...]]:
    longer = [] if entry.optional_size is None else [(*entry.sizes, entry.optional_size)]
    return [entry.sizes, *longer]
