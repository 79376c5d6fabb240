"""AdamW with one call for all parameters; its formulas and its state are those of torch."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from structattn.operators.foreach import AdamWOptions, adamw_, tensor_list

_OTHER_FORMULAS = ("amsgrad", "maximize", "capturable", "differentiable")


class AdamW(torch.optim.AdamW):
    """torch's AdamW, which does the work where the kernel is not for the parameters, their gradients or the options."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have gradients."""
        group, *others = self.param_groups
        if closure is not None or others or not self._update(group):
            # Without the hooks that torch wraps around it: they are around this step, too.
            inherited = inspect.unwrap(torch.optim.AdamW.step, stop=lambda step: not getattr(step, "hooked", False))
            return inherited(self, closure)
        return None

    def _update(self, group: dict[str, Any]) -> bool:
        """Update by the kernel; return whether it is for this update."""
        scaled = getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None
        if scaled or isinstance(group["lr"], Tensor) or any(group[name] for name in _OTHER_FORMULAS):
            return False
        present: list[Tensor] = [parameter for parameter in group["params"] if parameter.grad is not None]
        states = [self.state.get(parameter) or self._new_state(parameter) for parameter in present]
        parameters, gradients = tensor_list(present), tensor_list([parameter.grad for parameter in present])
        names = "exp_avg", "exp_avg_sq", "step"
        means, squares, steps = (tensor_list([state[name] for state in states]) for name in names)
        if parameters is None or gradients is None or means is None or squares is None or steps is None:
            return False
        if steps.dtype != torch.float32:
            return False
        beta1, beta2 = group["betas"]
        options = AdamWOptions(group["lr"], beta1, beta2, group["eps"], group["weight_decay"])
        adamw_(parameters, gradients, means, squares, steps, options)
        torch.autograd.graph.increment_version(present)
        return True

    def _new_state(self, parameter: Tensor) -> dict[str, Tensor]:
        means, squares = (torch.zeros_like(parameter.detach()) for _ in range(2))
        state = {"step": torch.zeros((), dtype=torch.float32), "exp_avg": means, "exp_avg_sq": squares}
        self.state[parameter] = state
        return state
