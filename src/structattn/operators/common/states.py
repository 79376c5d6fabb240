"""States of a batch, from which members can be chosen."""

from dataclasses import fields
from typing import Any, ClassVar, Self

from torch import Tensor

from structattn.support.shapes import Int


class Selectable:
    """A dataclass of tensors whose first dimension is the batch, of other states, and of what all members share."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def select(self, indices: Int[Tensor, " chosen"]) -> Self:
        """Return the states of some members of the batch, in the given order, with repetition."""
        return type(self)(*(_selected(getattr(self, each.name), indices) for each in fields(self)))


def _selected(value: Any, indices: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, indices)
    if hasattr(value, "select"):  # a named tuple may have its own
        return value.select(indices)
    return tuple(_selected(each, indices) for each in value) if isinstance(value, tuple) else value
