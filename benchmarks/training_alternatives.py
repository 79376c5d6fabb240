"""Other ways to take a training step, compared with ours: one thread, processor time.

    OMP_NUM_THREADS=1 python benchmarks/training_alternatives.py [--output FILE.json]

The models are those of DuSell & Chiang (2024, section 6), on ten strings of 60 symbols. Compared with training by
kernels, as in ``structattn train``, are the modules in ten restarts trained together by ``torch.vmap`` over their
parameters, and the modules compiled by ``torch.compile``. The former has favourable conditions: all restarts have the
same dropout masks, batches of one length, and the same learning rate.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from result_file import heading, parse_output, print_and_write
from torch._dynamo.utils import counters  # torch has no public count of compiled graphs
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F
from training_steps import interleaved, settings_of_model

from structattn.runs.folder import RunFolder
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.loop import Update, training_step

MODELS, LENGTH, STRINGS, RESTARTS, ROUNDS = ("Tf", "Tf+Sup", "Tf+Nd 2-3-5"), 60, 10, 10, 15
RATE, MAX_NORM = 0.001, 5.0


def plan_and_update(model: str, folder: Path) -> tuple[Any, Update[Any]]:
    """Return the plan of a run, and its first update."""
    plan = make_plan(RunFolder(folder / model), settings_of_model(model, LENGTH, folder))
    return plan, Update(1, [plan.task.batch(np.arange(STRINGS))], RATE, MAX_NORM)


def one_by_one(plan: Any, update: Update[Any]) -> Callable[[], None]:
    """Return a function that takes a step of each restart, by the training loop."""
    learners = [initial_learner(plan) for _ in range(RESTARTS)]

    def work() -> None:
        for learner in learners:
            training_step(learner, plan.task, update)

    return work


def together(plan: Any, update: Update[Any]) -> Callable[[], None]:
    """Return a function that takes a step of all restarts, with a batch of parameters."""
    models = [initial_learner(plan).model for _ in range(RESTARTS)]
    given, buffers = stack_module_state(models)
    parameters = {name: parameter.detach().requires_grad_() for name, parameter in given.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, fused=True)
    (batch,) = update.batches
    inputs, classes = (torch.stack([each] * RESTARTS) for each in (batch.inputs, batch.targets - 2))

    def loss(own: Any, own_buffers: Any, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = functional_call(models[0], (own, own_buffers), (tokens,))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / STRINGS

    def work() -> None:
        torch.vmap(loss, randomness="same")(parameters, buffers, inputs, classes).sum().backward()
        gradients = [parameter.grad for parameter in parameters.values()]
        norms = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()
        for gradient in gradients:
            gradient.mul_((MAX_NORM / norms).clamp(max=1).view(-1, *[1] * (gradient.dim() - 1)))
        optimizer.step()
        optimizer.zero_grad()

    return work


def compiled(plan: Any, update: Update[Any], backend: str = "inductor") -> Callable[[], None]:
    """Return a function that takes a step of a compiled model as often as there are restarts."""
    learner = initial_learner(plan)
    learner = replace(learner, accelerated=learner.model)  # what a step calls; the kernels are not compiled
    learner.accelerated.compile(backend=backend)

    def work() -> None:
        for _ in range(RESTARTS):
            training_step(learner, plan.task, update)

    return work


def seconds_to_compile(work: Callable[[], None]) -> float:
    """Return the seconds of the first call of ``compiled``.

    Raises:
        RuntimeError: nothing was compiled, so that later calls would measure something else.
    """
    graphs, start = counters["stats"]["unique_graphs"], time.perf_counter()
    work()
    if counters["stats"]["unique_graphs"] == graphs:
        raise RuntimeError("the training step has compiled no graph; expected one of the model")
    return time.perf_counter() - start


def compare(model: str, folder: Path) -> dict[str, float]:
    """Return the time of each way relative to the training loop, and the seconds until a compiled model has learned."""
    plan, update = plan_and_update(model, folder)
    works = {"one by one": one_by_one(plan, update), "together": together(plan, update)}
    works["compiled"] = compiled(plan, update)
    first = seconds_to_compile(works["compiled"])
    seconds = interleaved(works, ROUNDS, model)
    ratios = {name: statistics.median(seconds[name] / seconds["one by one"]) for name in ("together", "compiled")}
    return {**ratios, "seconds_to_compile": first}


def main() -> None:
    """Measure the models, and print the ratios."""
    output = parse_output(__doc__)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        relative_times = {model: compare(model, Path(folder)) for model in MODELS}
    result = {
        **heading("OMP_NUM_THREADS=1 python benchmarks/training_alternatives.py"),
        "torch": torch.__version__,
        "restarts": RESTARTS,
        "relative_times": relative_times,
    }
    print_and_write(result, output)


if __name__ == "__main__":
    main()
