"""What positions must do: checks of those that are added to embeddings, and of those that act on scores.

Each check raises ``BrokenContractError``.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from structattn.attention.contract import require_close
from structattn.support.errors import BrokenContractError

_TOLERANCE: Final = 1e-6  # of positions in float32
_TIME: Final = 7


def check_added_shape(positions: Any, d_model: int) -> None:
    """Positions that are added have shape (count, d_model) and are finite, also for no positions."""
    for first, count in ((0, _TIME), (3, 1), (2, 0)):
        _require("positions", positions(first, count), (count, d_model))


def check_added_steps(positions: Any, d_model: int) -> None:
    """A position is the same in a step as in the whole sequence."""
    whole = positions(0, _TIME)
    for first, count in ((0, 3), (3, 4), (6, 1)):
        found, expected = positions(first, count), whole[first : first + count]
        require_close(f"a position from {first} on", found, "that of the whole sequence", expected, _TOLERANCE)


def check_scores_shape(positions: Any, num_heads: int, size: int) -> None:
    """Queries and keys keep their shapes, and the bias fits the scores; all are finite."""
    query, key = _vectors(num_heads, size)
    new_query, new_key, bias = positions(query, key, 0)
    _require("queries", new_query, tuple(query.shape))
    _require("keys", new_key, tuple(key.shape))
    if bias is None:
        return
    allowed = [{1, len(query)}, {1, num_heads}, {_TIME}, {_TIME}]
    if bias.dim() != 4 or any(axis not in each for axis, each in zip(bias.shape, allowed, strict=True)):
        expected = f"(1 or {len(query)}, 1 or {num_heads}, {_TIME}, {_TIME})"
        raise BrokenContractError(f"the bias has shape {tuple(bias.shape)}; expected {expected}")


def check_scores_steps(positions: Any, num_heads: int, size: int) -> None:
    """The scores of a step, one query with all keys so far, are those of the whole sequence."""
    query, key = _vectors(num_heads, size)
    whole = _scores(positions, query, key, 0)
    for t in range(_TIME):
        found, expected = _scores(positions, query[:, :, t : t + 1], key[:, :, : t + 1], t), whole[:, :, t, : t + 1]
        require_close("a score of a step", found[:, :, 0], "that of the whole sequence", expected, _TOLERANCE)


def check_scores_batches(positions: Any, num_heads: int, size: int) -> None:
    """The scores of a sequence alone are those in a batch."""
    query, key = _vectors(num_heads, size)
    together = _scores(positions, query, key, 0)
    for b in range(len(query)):
        alone = _scores(positions, query[b : b + 1], key[b : b + 1], 0)
        require_close("a score in a batch", together[b : b + 1], "that of the sequence alone", alone, _TOLERANCE)


ADDED_CHECKS: Final[Mapping[str, Callable[[Any, int], None]]] = MappingProxyType(
    {"shape": check_added_shape, "steps": check_added_steps}
)
"""Of positions that are added, with d_model."""
SCORES_CHECKS: Final[Mapping[str, Callable[[Any, int, int], None]]] = MappingProxyType(
    {"shape": check_scores_shape, "steps": check_scores_steps, "batches": check_scores_batches}
)
"""Of positions that act on scores, with the number of heads and the size of a head."""


def _scores(positions: Any, query: Tensor, key: Tensor, first: int) -> Tensor:
    query, key, bias = positions(query, key, first)
    products = query @ key.transpose(-1, -2)
    return products if bias is None else products + bias


def _vectors(num_heads: int, size: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, num_heads, _TIME, size, generator=generator) for _ in ("query", "key")]


def _require(what: str, found: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(found.shape) != shape:
        raise BrokenContractError(f"{what} have shape {tuple(found.shape)}; expected {shape}")
    if not found.isfinite().all():
        raise BrokenContractError(f"{what} are not finite")
