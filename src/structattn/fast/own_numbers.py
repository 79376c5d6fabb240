"""Random numbers of comparisons: torch's global generators are left to others, also to other threads."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_DRAWS = torch.rand, torch.randint, torch.Tensor.random_  # all that modules of this package draw by on a CPU
_PARTS = tuple(f"torch.nn.modules.{name}" for name in ("container", "linear", "normalization", "sparse"))
_turn = Lock()


class OwnNumbers(TorchFunctionMode):
    """Within this context, functions of torch by which this thread draws use a generator of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch."""
        own = {"generator": self._generator} if any(func is each for each in _DRAWS) else {}
        return func(*args, **own | (kwargs or {}))


def may_draw_otherwise(modules: Iterable[nn.Module]) -> bool:
    """Return whether modules are of classes that may draw numbers which ``OwnNumbers`` does not give them."""
    return not all(type(module).__module__.startswith(("structattn.", *_PARTS)) for module in modules)


@contextmanager
def generator_restored(needed: bool) -> Iterator[None]:
    """Restore torch's generator at the end, if needed: other threads may then draw the same numbers again."""
    if not needed:
        yield
        return
    with _turn, torch.random.fork_rng([]):  # not two at once, of which the last would restore what the first has seeded
        yield
