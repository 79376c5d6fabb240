"""Check the mechanisms of a plugin against the contract of attention layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import torch
from pydantic import ValidationError

from structattn.attention.contract import CHECKS, BrokenContractError
from structattn.models.builders.mechanisms import build_attention
from structattn.settings.mechanisms import MECHANISMS, Mechanism
from structattn.settings.transformer import TransformerSettings
from structattn.support.errors import UsageError
from structattn.support.plugins import load_plugin

_MODEL = TransformerSettings(d_model=6, num_heads=3)


@dataclass(frozen=True)
class Verdict:
    """The result of one check of a mechanism.

    Args:
        mechanism: its name.
        check: the name of the check.
        rule: what the check demands.
        problem: what was found instead; empty if the mechanism does what it must.
    """

    mechanism: str
    check: str
    rule: str
    problem: str


def verdicts_on(plugins: Sequence[str]) -> list[Verdict]:
    """Load plugins, and check all their mechanisms that are layers, with small sizes and in evaluation mode.

    Raises:
        UsageError: a plugin cannot be loaded or has no such mechanism, or one needs settings that are no sizes.
    """
    loaded = [load_plugin(name) for name in plugins]
    entries = [entry for name, entry in MECHANISMS.items() if MECHANISMS.plugins.get(name) in loaded]
    entries = [entry for entry in entries if entry.layer or entry.self_attention]
    if not entries:
        raise UsageError(f"{', '.join(plugins)}: registers no mechanism with a layer, which could be checked")
    return [verdict for entry in entries for verdict in _verdicts(entry)]


def _verdicts(entry: Mechanism) -> Iterator[Verdict]:
    for name, check in CHECKS.items():
        rule = (getdoc(check) or "").split("\n", maxsplit=1)[0]
        yield Verdict(entry.name, name, rule, _problem(lambda check=check: check(_layer(entry), _examples())))
    yield Verdict(
        entry.name, "names", "Records of explain have the names of the entry.", _problem(lambda: _names(entry))
    )


def _names(entry: Mechanism) -> None:
    record = _layer(entry).explain(_examples())
    if record.mechanism != entry.name:
        raise BrokenContractError(f"explain returns the mechanism {record.mechanism!r}; expected {entry.name!r}")
    actions = record.details["actions"].shape[-1] if "actions" in record.details else 0
    if actions != len(entry.actions):
        raise BrokenContractError(f"explain returns {actions} actions; the entry has the names {entry.actions}")


def _problem(check: Any) -> str:
    try:
        check()
    except UsageError:
        raise
    except Exception as error:  # whatever the code of the user raises
        words = " ".join(str(error).split())
        return words if isinstance(error, AssertionError) else f"{type(error).__name__}: {words}"
    return ""


def _layer(entry: Mechanism) -> Any:
    """Return a layer with small numbers for the sizes of the short form, and no parameter that is zero."""
    sizes = {field: size for size, field in enumerate(entry.sizes, start=2)}
    try:
        settings = entry.settings.model_validate({"attention": entry.name, **sizes})
    except ValidationError as error:
        field = error.errors()[0]["loc"][0]
        raise UsageError(f"{entry.name}: {field} needs a default, or a place among the sizes") from None
    torch.manual_seed(5)
    layer: Any = build_attention(_MODEL, settings, causal=True)
    layer.double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.5, 0.5))
    return layer


def _examples() -> torch.Tensor:
    return torch.randn(3, 7, _MODEL.d_model, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
