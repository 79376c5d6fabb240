"""Arrays of a JSON file: each is packed as text, apart from what has it, and described in its place."""

import base64
import math
import zlib
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, ValidationInfo

from structattn.support.errors import UsageError
from structattn.support.json_files import Shape
from structattn.support.reading import MAX_BYTES

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
MAX_UNPACKED = 4 * MAX_BYTES
"""The most bytes of all arrays of a file: a small file may unpack to many."""
_DTYPES = {"float32": np.dtype("<f4"), "int32": np.dtype("<i4")}


class _Description(Shape):
    array: Annotated[int, Field(ge=0)]
    dtype: Literal["float32", "int32"]
    shape: list[Annotated[int, Field(ge=0, le=1_000_000)]]


class _Sizes:
    """The bytes of the arrays of a file, so far."""

    def __init__(self) -> None:
        self._total = 0

    def problem(self, size: int) -> str:
        """Count an array; return what is wrong with its size or that of all, empty if nothing is."""
        self._total += size
        if size <= MAX_BYTES and self._total <= MAX_UNPACKED:
            return ""
        limits = f"expected at most {MAX_BYTES >> 20}, and {MAX_UNPACKED >> 20}"
        return f"an array has {size >> 20} MiB, all have {self._total >> 20}; {limits}"


class ArrayWriter:
    """Packs the arrays of a file, in ``packed``."""

    def __init__(self) -> None:
        self.packed, self._sizes = list[str](), _Sizes()

    def add(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Pack an array, as float32 or int32, and return its description.

        Raises:
            UsageError: it has more than 256 MiB, or all have more than 1 GiB.
        """
        name = "float32" if np.issubdtype(array.dtype, np.floating) else "int32"
        numbers = np.ascontiguousarray(array, dtype=_DTYPES[name]).tobytes()
        if problem := self._sizes.problem(len(numbers)):
            raise UsageError(f"{problem}: record fewer or shorter examples")
        self.packed.append(base64.b64encode(zlib.compress(numbers, 1)).decode())
        return {"array": len(self.packed) - 1, "dtype": name, "shape": list(array.shape)}


class ArrayReader:
    """Unpacks the arrays of a file, each once, however many descriptions stand for it.

    Args:
        packed: those of an ``ArrayWriter``.
    """

    def __init__(self, packed: list[str]) -> None:
        self._packed, self._unpacked, self._sizes = packed, dict[int, bytes](), _Sizes()

    def numbers(self, index: int, size: int) -> bytes:
        """Return the bytes of an array, ``size`` of them.

        Raises:
            ValueError: it has others or more than 256 MiB, or all have more than 1 GiB.
        """
        if index >= len(self._packed):
            raise ValueError(f"there are {len(self._packed)} arrays; expected array {index}")
        if index not in self._unpacked:
            if problem := self._sizes.problem(size):
                raise ValueError(problem)
            try:
                packed = base64.b64decode(self._packed[index], validate=True)
                self._unpacked[index] = zlib.decompressobj().decompress(packed, size + 1)
            except zlib.error as error:
                raise ValueError(f"array {index}: {error}") from None
        if len(self._unpacked[index]) != size:
            raise ValueError(f"array {index} has not the {size} bytes of its shape")
        return self._unpacked[index]


def _unpacked(description: _Description, info: ValidationInfo) -> Array:
    """Return the numbers that a description stands for, among those of the file."""
    dtype, shape = _DTYPES[description.dtype], tuple(description.shape)
    reader: ArrayReader = info.context or ArrayReader([])
    return np.frombuffer(reader.numbers(description.array, dtype.itemsize * math.prod(shape)), dtype).reshape(shape)


PackedArray = Annotated[_Description, AfterValidator(_unpacked)]
"""An array where a file has its description; the context of the validation is an ``ArrayReader``."""
