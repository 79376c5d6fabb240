"""Constants for ``torch.compile``."""

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def constant_when_compiled(function: _Function) -> _Function:
    """Let ``torch.compile`` call the function while it traces, and keep its result as a constant.

    The same mark as by ``torch.compiler.assume_constant_result``, which would import the compiler: two seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
