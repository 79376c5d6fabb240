"""AdamW with one call for all parameters; its formulas and its state are those of torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from structattn.operators.foreach import AdamWOptions, adamw_, tensor_list


class AdamW(torch.optim.AdamW):
    """torch's AdamW, which does the work where the kernel is not for the parameters or their gradients."""

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
        states = [self.state[parameter] or self._new_state(parameter) for parameter in present]
        means, squares = (
            parameters._replace(addresses=[state[name].data_ptr() for state in states])
            for name in ("exp_avg", "exp_avg_sq")
        )
        beta1, beta2 = group["betas"]
        options = AdamWOptions(group["lr"], beta1, beta2, group["eps"], group["weight_decay"])
        adamw_(parameters, gradients, means, squares, [state["step"] for state in states], options)
        return True

    def _new_state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = {"step": torch.zeros((), dtype=torch.float32)}
        state |= {name: torch.zeros_like(parameter.detach()) for name in ("exp_avg", "exp_avg_sq")}
        self.state[parameter] = state
        return state
