"""Tables that modules compute from their arguments and do not store."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.types import Device


class ComputedTable(nn.Module):
    """A module with a buffer ``table`` that is not part of its state.

    A cast, or a move from the meta device, would lose it: it is then computed anew. Subclasses call ``keep_table`` at
    the end of their ``__init__``.
    """

    table: Tensor
    table_dtype: torch.dtype | None = None  # in which the table stays under casts; None: that of the module

    def computed_table(self, device: Device) -> Tensor:
        """Return the table, on a device; None: torch's default one."""
        raise NotImplementedError

    def keep_table(self, device: Device, dtype: torch.dtype | None) -> None:
        """Register the table; None: with torch's default device and dtype."""
        table = self.computed_table(device).to(self.table_dtype or dtype or torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)

    def _apply(self, function: Callable[[Tensor], Tensor], recurse: bool = True) -> "ComputedTable":
        before = self.table
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]  # torch's
        after = self.table
        if (before.is_meta or after.dtype != before.dtype) and not after.is_meta:
            self.table = self.computed_table(after.device).to(self.table_dtype or after.dtype)
        return self
