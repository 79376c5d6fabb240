"""Layers in short: ``2.nondeterministic-2-3-5.2``, ``5+stack_pointer``, ``4xnone.softmax-1``."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# The sizes that may follow each name after hyphens, by letter.
_SIZES: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "softmax": ((), ("h",)),
        "hard": ((), ("h",)),
        "gaussian": ((), ("h",)),
        "superposition": (("m",),),
        "stratified": (("m",),),
        "nondeterministic": (("Q", "S", "m"), ("Q", "S", "m", "window")),
        "stack_pointer": ((),),
        "none": ((),),
    }
)
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "h": "num_heads",
        "m": "stack_embedding_size",
        "Q": "num_states",
        "S": "stack_alphabet_size",
        "window": "window",
    }
)
_NUMBER = "[0-9]+"


def layers_from_short(value: object) -> object:
    """Turn the short form into the list it stands for; leave anything but text and whole numbers alone.

    Parts are separated by points. A number stands for that many softmax layers; a name, followed by sizes after
    hyphens, for one layer (``superposition-m``, ``nondeterministic-Q-S-m``, ``softmax-h`` with h heads); with ``3x``
    before it, for three of them. ``+`` adds a stack after the feed-forward sublayer: ``5+stack_pointer``.
    ``stack_pointer`` alone is the layer of its paper, ``softmax+stack_pointer``.

    Raises:
        ValueError: the text does not read so.
    """
    if isinstance(value, float):  # 2.10 would have become 2.1 on the way
        raise ValueError(f"YAML reads {value} as a number; write the layers in quotes, or add them up")
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        return value
    return [layer for part in text.split(".") for layer in _layers_of_part(part, text)]


def mechanism_from_short(value: object) -> object:
    """Turn ``superposition-10`` into what it stands for; leave anything but text alone.

    Raises:
        ValueError: the text does not read so.
    """
    return _mechanism(value, value) if isinstance(value, str) else value


def _layers_of_part(part: str, text: str) -> list[dict[str, Any]]:
    body, plus, stack = part.partition("+")
    if re.fullmatch(_NUMBER, body):
        count, name = body, "softmax"
    else:
        found = re.fullmatch(f"(?:({_NUMBER})x)?(.*)", body, re.DOTALL)
        count, name = (found[1] or "1", found[2]) if found else ("1", body)
    if name == "stack_pointer" and not plus:
        name, plus, stack = "softmax", "+", "stack_pointer"
    added = {"stack": _mechanism(stack, text)} if plus else {}
    return [_mechanism(name, text) | added for _ in range(int(count))]


def _mechanism(part: str, text: str) -> dict[str, Any]:
    name, *sizes = part.split("-")
    choices = _SIZES.get(name)
    if choices is None:
        raise ValueError(f"{part!r} in {text!r} is neither a number of softmax layers nor one of {sorted(_SIZES)}")
    letters = next((choice for choice in choices if len(choice) == len(sizes)), None)
    if letters is None or not all(re.fullmatch(_NUMBER, size) for size in sizes):
        forms = " or ".join("-".join([name, *choice]) for choice in choices)
        raise ValueError(f"{part!r} in {text!r} should read {forms}, with numbers")
    return {"attention": name, **{_FIELDS[letter]: int(size) for letter, size in zip(letters, sizes, strict=True)}}
