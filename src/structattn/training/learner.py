"""The model in training with its optimizer and random generators: build them, extract and restore their state."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from structattn.acceleration import accelerate
from structattn.runs.selection import MismatchError, check_like, whole
from structattn.settings.training import TrainingSettings
from structattn.support.devices import default_device
from structattn.training.distributed import SINGLE, DataParallel, World, like_parameter, replicate, shard
from structattn.training.optimizers import Optimizers, build_optimizers, expected_state


@dataclass(frozen=True)
class Learner:
    """A model in training.

    Args:
        model: the model, on its device, with float32 weights.
        accelerated: what computes the model: its fast form, or the model.
        parameters: the parameters in the order of ``model.parameters()``; walking the modules for them takes time.
        optimizers: the optimizers of these parameters, each of some of them.
        bf16: whether forward passes run under bfloat16 autocast.
        world: the processes that train together.
        parallel: the model as they share it; None for a single process.
    """

    model: torch.nn.Module
    accelerated: torch.nn.Module
    parameters: tuple[Tensor, ...]
    optimizers: Optimizers
    device: torch.device
    bf16: bool = False
    world: World = SINGLE
    parallel: DataParallel | None = None

    def autocast(self) -> torch.autocast:
        """Return the context of forward passes: bfloat16 autocast if ``bf16`` is set."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)


def build_learner(model: torch.nn.Module, settings: TrainingSettings, device: str = "auto") -> Learner:
    """Move a model to a device and give it a fresh optimizer.

    Args:
        model: a model on the CPU.
        settings: precision and optimizer.
        device: a device of torch; ``auto`` is the first GPU if CUDA is available, the CPU otherwise.

    Raises:
        SettingsError: the optimizer is Muon, and the model has no matrices in its layers.
    """
    place = default_device() if device == "auto" else torch.device(device)
    model = model.to(place).train()
    parameters = tuple(model.parameters())
    optimizers = build_optimizers(model, settings.optimizer)
    return Learner(model, accelerate(model), parameters, optimizers, place, bf16=settings.precision == "bf16")


def distribute(learner: Learner, settings: TrainingSettings) -> Learner:
    """Return a learner that trains together with those of other processes, which have the same state.

    With FSDP the parameters of its model are replaced by sharded ones.
    """
    world = learner.world
    if world.size == 1:
        return learner
    if settings.strategy == "ddp":
        return replace(learner, parallel=DataParallel(world, replicate(learner.accelerated)))
    module = shard(learner.model, learner.device)
    parameters = tuple(learner.model.parameters())
    optimizers = build_optimizers(learner.model, settings.optimizer)
    (optimizer,), (unsharded,) = optimizers, learner.optimizers  # settings refuse those that need whole matrices
    for before, parameter in zip(learner.parameters, parameters, strict=True):
        if state := unsharded.state.get(before):
            optimizer.state[parameter] = {name: like_parameter(value, parameter) for name, value in state.items()}
    return replace(learner, parameters=parameters, optimizers=optimizers, parallel=DataParallel(world, module))


def optimizer_tensors_of(learner: Learner) -> dict[str, Tensor]:
    """Return the optimizer state as ``parameter/quantity``; gathered, as by ``weights_of``, if it is sharded."""
    return {
        f"{name}/{quantity}": whole(tensor)
        for name, parameter in learner.model.named_parameters()
        for optimizer in learner.optimizers
        for quantity, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(learner: Learner, saved: Mapping[str, Tensor]) -> None:
    """Restore the optimizer state from copies of saved tensors.

    Raises:
        MismatchError: a tensor belongs to no parameter, is missing, or has another shape or dtype.
    """
    unused = set(saved)
    groups = [(owner, group) for owner in learner.optimizers for group in owner.param_groups]
    owners = {id(each): owner for owner, group in groups for each in group["params"]}
    for name, parameter in learner.model.named_parameters():
        prefix = f"{name}/"
        present = {key.removeprefix(prefix): saved[key] for key in saved if key.startswith(prefix)}
        unused -= {prefix + quantity for quantity in present}
        if present:
            optimizer = owners[id(parameter)]
            optimizer.state[parameter] = _state(name, present, expected_state(optimizer, parameter))
    if unused:
        raise MismatchError(f"{min(unused)!r} belongs to no parameter of the model")


def _state(name: str, saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # fresh memory, not views of the file's bytes: vectorised sums may depend on how memory is aligned
    if different := sorted(expected.keys() ^ saved.keys()):
        raise MismatchError(f"'{name}/{different[0]}' is {'missing' if different[0] in expected else 'unknown'}")
    for quantity, like in expected.items():
        check_like(f"{name}/{quantity}", saved[quantity], like)
    return {quantity: torch.empty_like(like.detach()).copy_(saved[quantity]) for quantity, like in expected.items()}


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random generators that dropout uses."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def generators_of_all(learner: Learner) -> dict[str, Tensor]:
    """Return the states of the generators of all processes; to the names of those of process r > 0, ``/r`` is added."""
    return {
        f"{name}/{rank}" if rank else name: state
        for name, own in generator_states(learner.device).items()
        for rank, state in enumerate(learner.world.gather(own))
    }


def own_generators(states: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Return the states of one process from those of all; none if fewer processes trained before."""
    if world.is_first:
        return {name: state for name, state in states.items() if "/" not in name}
    end = f"/{world.rank}"
    return {name.removesuffix(end): state for name, state in states.items() if name.endswith(end)}


def set_generator_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the random generators; those without a state, and states of absent devices, are left alone."""
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def generators_to_text(states: Mapping[str, Tensor]) -> dict[str, str]:
    """Encode generator states in base64."""
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def generators_from_text(texts: Mapping[str, str]) -> dict[str, Tensor]:
    """Decode the output of `generators_to_text`.

    Raises:
        MismatchError: a state is missing or not base64.
    """
    if "cpu" not in texts:
        raise MismatchError("the state of the generator 'cpu' is missing")
    try:
        decoded = {name: base64.b64decode(text, validate=True) for name, text in texts.items()}
    except binascii.Error as error:
        raise MismatchError(f"a generator's state is not base64: {error}") from None
    return {name: torch.tensor(list(state), dtype=torch.uint8) for name, state in decoded.items()}
