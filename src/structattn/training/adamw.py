"""AdamW with one call for all parameters; its formulas and its state are those of torch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.operators.foreach import AdamWOptions, TensorList, adamw_, tensor_list

_NAMES = ("exp_avg", "exp_avg_sq", "step")


class _Lists(NamedTuple):
    """The optimizer's state for the kernel.

    Args:
        found_for: the identities of the parameters and of all states; other ones need other lists.
        states: those of the parameters; identities of what is kept cannot be taken by anything else.
        lists: their tensors, in the order of ``_NAMES``.
    """

    found_for: tuple[list[int], list[int]]
    states: list[dict[str, Tensor]]
    lists: tuple[TensorList, TensorList, TensorList]


class AdamW(torch.optim.AdamW):
    """torch's AdamW, which does the work where the kernel is not for the parameters or their gradients."""

    _known: _Lists | None = None  # not searched in every step: that takes as long as the arithmetic of a small model

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have gradients."""
        group, *others = self.param_groups
        if closure is not None or others or not self._update(group):
            return super().step(closure)
        return None

    def _update(self, group: dict[str, Any]) -> bool:
        present: list[Tensor] = [parameter for parameter in group["params"] if parameter.grad is not None]
        parameters, gradients = tensor_list(present), tensor_list([parameter.grad for parameter in present])
        if parameters is None or gradients is None:
            return False
        identities = list(map(id, present)), list(map(id, self.state.values()))
        if self._known is None or self._known.found_for != identities:
            self._known = self._find_lists(present)
        beta1, beta2 = group["betas"]
        options = AdamWOptions(group["lr"], beta1, beta2, group["eps"], group["weight_decay"])
        adamw_(parameters, gradients, *self._known.lists, options)
        return True

    def _find_lists(self, present: list[Tensor]) -> _Lists:
        states = [self.state[parameter] or self._new_state(parameter) for parameter in present]
        lists = tuple(tensor_list([state[name] for state in states]) for name in _NAMES)
        assert None not in lists, "as the parameters are for the kernel, so is their state"
        found_for = list(map(id, present)), list(map(id, self.state.values()))
        return _Lists(found_for, states, lists)  # type: ignore[arg-type]  # three lists

    def _new_state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = {"step": torch.zeros((), dtype=torch.float32)}
        state |= {name: torch.zeros_like(parameter.detach()) for name in _NAMES[:2]}
        self.state[parameter] = state
        return state
