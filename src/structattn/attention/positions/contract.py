"""What positions that act on attention scores offer."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class ScorePositions(Protocol):
    """Positions that a layer with scores is given as ``positions``: scores = scale * query' . key' + bias.

    One object serves one layer, because it may have parameters. A query sees keys by where both stand, so the same
    call serves a whole sequence (``first`` 0) and one step of it (one query, all keys so far).
    """

    def __call__(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "#batch #heads time source"] | None]:
        """The query and the key to multiply, and what is added to their scaled products.

        Args:
            query: q; the one in row t stands at position first + t.
            key: k; the one in row s stands at position s.
            first: position of the first query.

        Returns:
            query' and key', shaped as they came, and the bias in the units of the scores, or None.
        """
        ...


def placed(
    positions: ScorePositions | None, query: Tensor, key: Tensor, first: int = 0
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What ``positions`` make of a query and a key; nothing without them."""
    return (query, key, None) if positions is None else positions(query, key, first)
