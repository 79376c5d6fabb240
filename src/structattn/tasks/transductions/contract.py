"""What transductions must do. Each check raises ``BrokenContractError``."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from structattn.support.errors import BrokenContractError, UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.transductions.transduction import Pairs, Transduction

_MAX_LENGTH: Final = 10
_COUNT: Final = 64


def check_drawn_pairs(task: Transduction) -> None:
    """Inputs and outputs are indices into the alphabets; the length of an output depends on that of its input alone."""
    for length in _lengths(task):
        for count in (1, _COUNT):
            try:
                _draw(task, length, count)
            except UsageError as error:
                raise BrokenContractError(str(error)) from None


def check_drawn_again(task: Transduction) -> None:
    """Equal generators draw equal pairs."""
    for length in _lengths(task):
        for name, first, second in zip("xy", _draw(task, length), _draw(task, length), strict=True):
            if not np.array_equal(first, second):
                raise BrokenContractError(f"{name} of length {length} differs from that of an equal generator")


def check_answers(task: Transduction) -> None:
    """Equal inputs have equal outputs, where they count."""
    for length in _lengths(task)[:3]:
        x, y = _draw(task, length, 8 * _COUNT)
        answers: dict[bytes, np.ndarray[Any, Any]] = {}
        for string, output, counted in zip(x, y, task.counted(y), strict=True):
            answer = output[counted]
            if not np.array_equal(answers.setdefault(string.tobytes(), answer), answer):
                raise BrokenContractError(f"the input {string.tolist()} has two outputs, {answer.tolist()} is one")


def check_counted(task: Transduction) -> None:
    """Counted positions are truth values of the shape of the outputs."""
    for length in _lengths(task):
        _, y = _draw(task, length)
        counted = np.asarray(task.counted(y))
        if counted.shape != y.shape or counted.dtype != bool:
            found = f"dtype {counted.dtype} and shape {counted.shape}"
            raise BrokenContractError(f"counted has {found}; expected bool and {y.shape}")


TRANSDUCTION_CHECKS: Final[Mapping[str, Callable[[Transduction], None]]] = MappingProxyType(
    {"pairs": check_drawn_pairs, "seeds": check_drawn_again, "answers": check_answers, "counted": check_counted}
)


def _lengths(task: Transduction) -> list[int]:
    lengths = task.valid_lengths(1, _MAX_LENGTH)
    if not lengths:
        raise BrokenContractError(f"no x has a length from 1 to {_MAX_LENGTH}")
    return lengths


def _draw(task: Transduction, length: int, count: int = _COUNT) -> Pairs:
    return task.sample(length, count, numpy_generator(1, "contract", length))
