"""Shallow copies of modules: other modules with the same parameters, buffers, hooks and mode."""

from functools import cache
from typing import Any, TypeVar, cast

from torch import nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def shallow_copy(module: nn.Module, kind: type[ModuleT], children: dict[str, Any]) -> ModuleT:
    """Return a module of class ``kind`` with the attributes of another one; its mode is always that of the other.

    Args:
        module: the other one.
        kind: the class, of which ``__init__`` is not called.
        children: the submodules of the copy.
    """
    cls = _following(cast(Any, kind))
    copied: ModuleT = object.__new__(cls)
    copied.__dict__.update(vars(module), _modules=children, _original=module)
    return copied


@cache
def _following(kind: Any) -> Any:
    """Return a subclass of the same name with the mode of ``_original``."""

    def training(self: nn.Module) -> bool:
        mode: bool = vars(self)["_original"].training
        return mode

    def set_training(self: nn.Module, mode: bool) -> None:
        vars(self)["_original"].training = mode

    return type(kind.__name__, (kind,), {"training": property(training, set_training), "__module__": kind.__module__})
