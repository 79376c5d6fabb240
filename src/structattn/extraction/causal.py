"""The causal check: the model with the extracted transitions in place of the weights of its stack."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from structattn.extraction.letters import Letters
from structattn.extraction.observations import Replacement
from structattn.extraction.stacks import Allowed, Observation, StackReader, Step

Steps = Mapping[tuple[int, int], Sequence[Allowed]]


def only_extracted(reader: StackReader, letters: Letters, steps: Steps) -> Replacement:
    """Return what forbids all transitions but the extracted ones, gives those weight 1, and pushes class means.

    ``steps``: those that are allowed at each letter after each letter; -1 stands before ``<bos>``. Where two
    letters do not follow each other in them, a nondeterministic stack has no run, and a superposition stack takes
    its three actions with equal weights.
    """
    count, size = len(letters.features), reader.sizes[0]
    table = torch.zeros(count + 1, count, size)
    for before in range(-1, count):
        for letter in range(count):
            table[before, letter] = reader.only(steps.get((before, letter), ()))  # -1: the last row
    vectors = torch.from_numpy(np.ascontiguousarray(letters.class_means())).float()

    def replaced(ids: Tensor, output: Tensor) -> Tensor:
        read = letters.read_batch(ids, reader.features(output))
        before = torch.cat([torch.full_like(read[:, :1], -1), read[:, :-1]], 1)
        return torch.cat([table[before.cpu(), read.cpu()], vectors[read.cpu()]], -1).to(output)

    return replaced


def disabled(reader: StackReader, observations: Sequence[Observation]) -> Iterator[Replacement]:
    """Yield what replaces the outputs of the projection by constants, so that the stack does not read the string.

    The first keeps the stack as it is before the first step, the second gives all steps their mean weights and vectors.
    """
    weights = reader.weights(torch.from_numpy(np.concatenate([each.features for each in observations]))).mean(0)
    values = torch.from_numpy(np.concatenate([each.values for each in observations]).mean(0))
    still = reader.only([Allowed(0, 0, Step("replace", 0, 0))])
    for constant in (torch.cat([still, values]), torch.cat([weights, values])):
        yield lambda ids, output, constant=constant: constant.to(output).expand(output.shape)
