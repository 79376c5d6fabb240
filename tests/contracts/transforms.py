"""Steps within the transforms of ``torch.func``."""

import torch

from structattn.attention.contract import require_close


def check_under_transforms(steps, whole, x, *, forward_mode):
    """Steps agree with the whole sequence under vmap, in its gradient, and in forward mode.

    Args:
        steps: the outputs (B, T, d) of inputs, step by step.
        whole: the same, of the whole sequence.
        x: inputs (B, T, d).
        forward_mode: whether the layer has one.
    """
    xs = torch.stack([x, x.flip(1)])
    found, pullback = torch.func.vjp(torch.vmap(steps), xs)
    expected, pullback_of_whole = torch.func.vjp(lambda xs: torch.stack([whole(each) for each in xs]), xs)
    require_close("a step under vmap", found, "the whole sequence", expected, 1e-12)
    weight = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).sin().view(found.shape)
    gradients = pullback(weight)[0], pullback_of_whole(weight)[0]
    require_close("a gradient through steps under vmap", gradients[0], "the whole sequence", gradients[1], 1e-11)
    if forward_mode:
        tangents = (torch.func.jvp(each, (x,), (x.flip(1),))[1] for each in (steps, whole))
        require_close("a tangent of steps", next(tangents), "the whole sequence", next(tangents), 1e-11)
