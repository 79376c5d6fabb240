"""Protocol of positional methods that act on attention scores."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class ScorePositions(Protocol):
    """Positions that modify attention scores: scores = scale * query' . key' + bias.

    An object belongs to one layer, because it may have parameters. Results depend on the positions of queries and keys,
    so the same call serves whole sequences (``first`` 0) and single steps (one query, all keys so far).
    """

    def __call__(
        self, query: Float[Tensor, "batch heads time size"], key: Float[Tensor, "batch heads source size"], first: int
    ) -> tuple[Tensor, Tensor, Float[Tensor, "#batch #heads time source"] | None]:
        """Return query', key', and the bias.

        Args:
            query: q; row t is at position first + t.
            key: k; row s is at position s.
            first: position of the first query.

        Returns:
            query' and key', with unchanged shapes, and the bias, on the scale of the scores, or None.
        """
        ...
