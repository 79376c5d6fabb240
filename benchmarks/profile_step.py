"""Processor time of the parts of a training step, and the share of calls in it: one thread.

    python benchmarks/profile_step.py [--output FILE.json]

The models are Tf and Tf+Nd of DuSell & Chiang (2024, section 6) on ten strings of 60 symbols. The same parts are also
measured on one string of two symbols, where there is next to no arithmetic: that is the time of calls in Python and
torch. The layers are computed by kernels, as in ``structattn train``. Each step is timed part by part, and the steps
take turns; medians.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_file import heading, parse_output, print_and_write
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from training_steps import settings_of_model

from structattn.runs.folder import RunFolder
from structattn.tasks.losses import cross_entropy_sum, model_inputs
from structattn.training.assembly import initial_learner, make_plan

MODELS, REPEATS = ("Tf", "Tf+Nd 2-3-5"), 101
SIZES = {"step": (60, 10), "calls": (2, 1)}  # symbols and strings


class Stopwatch:
    """Collects the seconds of named parts."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def __call__(self, part: str, work: Callable[[], Any]) -> Any:
        """Return what ``work`` returns."""
        start = time.process_time()
        result = work()
        self.seconds[part].append(time.process_time() - start)
        return result

    def milliseconds(self) -> dict[str, float]:
        """Return the median of each part."""
        return {part: round(1e3 * statistics.median(values), 3) for part, values in self.seconds.items()}


def layers_by_kernels(network: Any) -> Any:
    """Return the layers of the accelerated form of a model.

    Raises:
        RuntimeError: no kernel computes them, so that their profile would not be that of training.
    """
    if not getattr(network.layers, "kernels", None):
        raise RuntimeError("the layers have no kernels; expected those that structattn train runs")
    return network.layers


def profiled_step(model: str, length: int, strings: int, folder: Path) -> tuple[Callable[[], None], Stopwatch]:
    """Return a function that takes a training step part by part, and its stopwatch."""
    plan = make_plan(RunFolder(folder / f"{model}-{length}"), settings_of_model(model, length, folder))
    learner, task, watch = initial_learner(plan), plan.task, Stopwatch()
    network: Any = learner.accelerated
    layers = layers_by_kernels(network)
    (optimizer,) = learner.optimizers

    def backward(part: str, output: Tensor, inputs: list[Tensor], cotangent: Tensor | None = None) -> Tensor:
        gradients = watch(f"{part}, backward", lambda: torch.autograd.grad(output, inputs, cotangent))
        for parameter, gradient in zip(inputs, gradients, strict=True):
            if parameter.is_leaf:
                parameter.grad = gradient
        return gradients[0]

    def step() -> None:
        tokens, lengths, classes = watch("batch", lambda: model_inputs(network, task.batch(np.arange(strings))))
        embedded = watch("embedding, forward", lambda: network.embedding(tokens))
        x = watch("layers, forward", lambda: layers(embedded, lengths))
        loss = watch("output and loss, forward", lambda: cross_entropy_sum(network.output(x), classes) / strings)
        cotangent = backward("output and loss", loss, [x, *network.output.parameters()])
        cotangent = backward("layers", x, [embedded, *layers.parameters()], cotangent)
        backward("embedding", embedded, list(network.embedding.parameters()), cotangent)
        gradients = [parameter.grad for parameter in learner.parameters]
        watch("clipping", lambda: clip_grads_with_norm_(learner.parameters, 5.0, get_total_norm(gradients)))
        watch("optimizer", optimizer.step)

    return step, watch


def profile(model: str, folder: Path) -> dict[str, dict[str, float]]:
    """Return the milliseconds of each part, of ordinary steps and of calls."""
    steps = {name: profiled_step(model, *sizes, folder) for name, sizes in SIZES.items()}
    for _ in range(REPEATS):
        for step, _ in steps.values():
            step()
    return {name: watch.milliseconds() for name, (_, watch) in steps.items()}


def main() -> None:
    """Measure the models, and print the parts."""
    output = parse_output(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        milliseconds = {model: profile(model, Path(name)) for model in MODELS}
    result = {
        **heading("OMP_NUM_THREADS=1 python benchmarks/profile_step.py"),
        "torch": torch.__version__,
        "milliseconds": milliseconds,
    }
    print_and_write(result, output)


if __name__ == "__main__":
    main()
