"""Types and shapes of tensors in signatures, such as ``Float[Tensor, "batch time"]``: for type checkers and tests."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.modules.get("jaxtyping"):  # imported first by pytest and the documentation
    from jaxtyping import Bool, Float, Float32, Float64, Int, Int32, Int64, Shaped
    from torch import Tensor

    Lengths = Int[Tensor, " batch"] | None
else:

    class _AnyShape:
        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Float32 = Float64 = Int = Int32 = Int64 = Shaped = _AnyShape
    Lengths = Any  # this module is imported without torch, too

__all__ = ["Bool", "Float", "Float32", "Float64", "Int", "Int32", "Int64", "Lengths", "Shaped"]
