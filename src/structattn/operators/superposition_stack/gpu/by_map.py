"""Readings of superposition stacks on a GPU by the map of stack pointers, whose product with the vectors they are."""

from typing import Any

from torch import Tensor

from structattn.operators.common.gpu import dot_precision, gpu_kernels, launch, power_of_two
from structattn.operators.superposition_stack.gpu.chunks import (
    Chunks,
    Gradients,
    add_adjoints,
    readings_in_chunks,
    stacks_of_chunks,
)


def map_is_cheaper(time: int, columns: int) -> bool:
    """Whether the map's T + 1 columns, of which a third is not zero, and the product take less time than m columns.

    Measured forward and backward on an H200 for T from 128 to 1,024 and m from 64 to 512; see DERIVATION.md.
    """
    return time < 2 * columns


def readings_by_map(given: Chunks) -> Tensor:
    """Return the readings (B, T, m), zeros from each length on."""
    maps = readings_in_chunks(_units(given))
    readings = given.actions.new_empty(*given.actions.shape[:2], given.columns)
    _launch(given, "product", given.actions.shape[1], given.columns, maps, *_vectors(given), given.lengths, readings)
    return readings


def gradients_by_map(given: Chunks, cotangent: Tensor) -> Gradients:
    """Return the gradients of actions, values and initial row. The map is computed again."""
    gradients = given.zero_gradients()
    for sequences in _units(given).parts():
        part = given.part(sequences)
        _backward(part, cotangent[sequences], *(x[sequences] for x in gradients))
    return gradients


def _backward(
    given: Chunks, cotangent: Tensor, grad_actions: Tensor, grad_values: Tensor, grad_initial: Tensor
) -> None:
    units, time = _units(given), given.actions.shape[1]
    maps = units.zero_readings()
    stacks, adjoint = stacks_of_chunks(units, maps), maps.new_empty(maps.shape)
    outputs = given.lengths, grad_values, grad_initial
    _launch(given, "vectors_adjoint", time + 1, given.columns, cotangent, maps, *outputs)
    _launch(given, "map_adjoint", time, time + 1, cotangent, *_vectors(given), given.lengths, adjoint)
    add_adjoints(units, stacks, adjoint, grad_actions, grad_values, grad_initial)


def _units(given: Chunks) -> Chunks:
    """Return the stacks whose readings are the map."""
    return given._replace(values=None, initial=None)


def _vectors(given: Chunks) -> tuple[Any, Any]:
    """Return the values and the initial row, or what the kernels do not read in place of it."""
    return given.values, given.values if given.initial is None else given.initial


def _launch(given: Chunks, kernel: str, rows: int, columns: int, *tensors: Tensor) -> None:
    """Start a kernel of product_gpu_kernel.py for a result of that size."""
    largest = 64 if given.actions.element_size() == 4 else 32
    R, C = power_of_two(max(rows, 16), largest), power_of_two(max(columns, 16), largest)
    launch(
        getattr(gpu_kernels("superposition_stack.gpu.product_gpu_kernel"), kernel),
        (-(-rows // R), -(-columns // C), len(given.actions)),
        tensors,
        *(given.actions.shape[1], given.columns),
        **{"R": R, "C": C, "K": 32, "FULL": given.initial is not None},
        PRECISION=dot_precision(given.actions.dtype, given.tf32),
    )
