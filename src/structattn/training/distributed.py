"""The processes that train a model together, what they tell each other, and how gradients are summed.

Small numbers travel over gloo, also where gradients travel over NCCL. Every process must call the same functions in the
same order. A process that waits for one that has died gets an error at once, since its connection is closed.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # missing in its __all__
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from structattn.support.devices import default_device, device_of
from structattn.support.errors import Interrupted, ReportedError, SettingsError, StructattnError
from structattn.tasks.task import AnyTask, Scores

TIMEOUT = timedelta(minutes=30)  # of a process that hangs; longer than another may take to write a checkpoint
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ItemT = TypeVar("_ItemT")


class LostProcessError(StructattnError):
    """Another process of the group has ended, or cannot be reached."""


@dataclass(frozen=True)
class World:
    """The processes that train a model together, seen from one of them; by default a single process.

    Args:
        rank: the number of this process, from 0. Process 0 alone writes the run folder.
        size: the number of processes.
        local_rank: the number of this process on its machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this is process 0."""
        return self.rank == 0

    def device(self) -> torch.device:
        """Return the device of this process: the CPU, or the GPU with its local rank.

        Raises:
            SettingsError: the machine has fewer GPUs than processes.
        """
        device = default_device()
        if self.size == 1 or device.type == "cpu":
            return device
        count = torch.cuda.device_count()
        if self.local_rank >= count:
            raise SettingsError(
                f"training.devices: process {self.local_rank} of this machine has no GPU of its own; expected at most "
                f"{count} processes on it"
            )
        return torch.device(device.type, self.local_rank)

    def share(self, items: Sequence[_ItemT]) -> tuple[list[_ItemT], bool]:
        """Return every ``size``-th item from number ``rank`` on; and whether the first of all had to be added.

        It is added where other processes have one item more, so that all have equally many.
        """
        own = list(items[self.rank :: self.size])
        idle = len(own) < -(-len(items) // self.size)
        return own + list(items[:idle]), idle

    def sum(self, value: float) -> float:
        """Return the sum over the processes, in float64."""
        return self._reduced(value, dist.ReduceOp.SUM)

    def largest(self, value: int) -> int:
        """Return the maximum over the processes."""
        return int(self._reduced(value, dist.ReduceOp.MAX))

    def from_first(self, value: float) -> float:
        """Return the value that process 0 passes."""
        return self._reduced(value if self.is_first else 0.0, dist.ReduceOp.SUM)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, which have the same shape, by rank."""
        if self.size == 1:
            return [tensor]
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(gathered, tensor)
        return gathered

    def require_first_with(self, has_one: bool) -> None:
        """Return in the first of the processes that have one, and in the first of all if none has.

        Raises:
            ReportedError: in the others.
        """
        lowest = int(self._reduced(self.rank if has_one else self.size, dist.ReduceOp.MIN))
        if self.rank != lowest % self.size:
            raise ReportedError(StructattnError.exit_code)

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.from_first(0.0)

    def _reduced(self, value: float, operation: dist.ReduceOp.RedOpType) -> float:
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total, operation)
        return total.item()


SINGLE = World()
"""A process that trains alone."""


def world_of(environment: Mapping[str, str]) -> World | None:
    """Return the place of this process in the group that torchrun has started; None without its variables.

    Raises:
        StructattnError: a variable is not a number, or the rank is not below the size.
    """
    if any(name not in environment for name in _VARIABLES):
        return None
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    texts = [environment.get(name, "0") for name in names]
    for name, text in zip(names, texts, strict=True):
        if not text.isdecimal():
            raise StructattnError(
                f"the environment variable {name} is {text!r}; expected a number, as torchrun sets it"
            )
    rank, size, local_rank = map(int, texts)
    if rank >= size:
        raise StructattnError(f"the environment variable RANK is {rank}; expected less than WORLD_SIZE, {size}")
    return World(rank, size, local_rank)


@contextmanager
def joined(world: World) -> Iterator[None]:
    """Connect the processes within the block. Of the errors that end them one is raised as it is, that of the first.

    Raises:
        ReportedError: another process has failed before this one.
        LostProcessError: another process has ended without an error, or cannot be reached.
    """
    if world.size == 1:
        yield
        return
    try:
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
        backend = "cpu:gloo,cuda:nccl" if default_device().type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=TIMEOUT)
    except dist.DistError as error:
        raise LostProcessError(f"cannot connect to the other processes: {str(error).splitlines()[0]}") from None
    try:
        if (device := world.device()).type == "cuda":
            torch.cuda.set_device(device)
        yield
        world.barrier()
    except ReportedError:
        raise
    except Exception as error:
        lost = is_lost_process(error)
        # all processes are interrupted together
        reports = world.is_first if isinstance(error, Interrupted) else _is_first_to_fail(store)
        if not reports and (lost or isinstance(error, StructattnError)):
            raise ReportedError(getattr(error, "exit_code", StructattnError.exit_code)) from None
        if lost:
            raise LostProcessError(_LOST.format(rank=world.rank, size=world.size)) from error
        raise
    finally:
        dist.destroy_process_group()


_LOST = "process {rank} of {size} lost the connection to another, which has ended; resume the run from its checkpoint"


def is_lost_process(error: BaseException) -> bool:
    """Return whether an error is that of a collective operation in which another process does not take part."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _is_first_to_fail(store: Store) -> bool:
    try:
        return bool(store.add("failed", 1) == 1)
    except (dist.DistError, RuntimeError):  # the process that holds the store has ended
        return True


_METHODS = ("attend", "initial_state", "step", "explain")  # of layers, besides forward


class Applied(nn.Module):
    """A model whose forward pass is a function of it: whatever the function computes is seen by DDP and FSDP."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Any, *arguments: Any) -> Any:
        """Return ``function(model, *arguments)``."""
        return function(self.model, *arguments)


@dataclass(frozen=True)
class DataParallel:
    """A model that several processes train.

    Args:
        world: the processes.
        module: the model, wrapped by DDP or FSDP; called as ``Applied`` is.
    """

    world: World
    module: nn.Module

    def loss_sum(self, task: AnyTask, batch: Any, last: bool) -> Tensor:
        """Return the loss of a batch of this process.

        ``last``: of the update; with DDP, its backward pass sums the gradients of all batches over the
        processes. With FSDP, that of each batch does.
        """
        if isinstance(self.module, DistributedDataParallel):
            self.module.require_backward_grad_sync = last
        loss: Tensor = self.module(task.loss_sum, batch)
        return loss

    def validate(self, task: AnyTask, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split in every process, and return the scores of the first."""
        applied = self.module.module if isinstance(self.module, DistributedDataParallel) else self.module
        scores: Scores = applied(task.validate, after_batch)
        agreed: dict[str, Any] = {
            name: self.world.from_first(value) for name, value in vars(scores).items() if isinstance(value, float)
        }
        return replace(scores, **agreed)

    def totals(self, loss_sum: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss summed over the processes and the norm of the whole gradient."""
        total = torch.tensor(self.world.sum(loss_sum.item()), dtype=torch.float64, device=norm.device)
        return total, norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def replicate(model: nn.Module) -> nn.Module:
    """Wrap a model with DDP: every process has all weights, and gradients are summed over the processes.

    Parameters without a gradient are allowed. This also keeps the buckets of gradients as they are at the first update,
    so that the order of summation does not change, and a resumed run is byte-identical.
    """
    applied = Applied(model)
    applied.unused = nn.Parameter(torch.zeros(1, device=device_of(model)))  # DDP warns if there is none
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # new versions have another name for broadcast_buffers
        replica = DistributedDataParallel(
            applied, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
        )
    replica.register_comm_hook(None, _sum_over_processes)
    return replica


def _sum_over_processes(state: None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return summed


def shard(model: nn.Module, device: torch.device) -> nn.Module:
    """Shard a model with FSDP: every process has a part of each weight, of its gradient and of its optimizer state.

    The layers of a model are gathered one by one, the other weights for the whole forward and backward pass. Gradients
    are summed over the processes. The parameters of the model are replaced by sharded ones.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in _layers(model):
        fully_shard(layer, mesh=mesh)
        for name in filter(partial(hasattr, layer), _METHODS):
            register_fsdp_forward_method(layer, name)
    sharded: nn.Module = Applied(model)
    fully_shard(sharded, mesh=mesh)
    for module in sharded.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return sharded


def require_shardable(model: nn.Module) -> None:
    """Check that FSDP can shard all weights of a model.

    Raises:
        SettingsError: a parameter has no dimensions, say of a mechanism of one's own.
    """
    if scalars := [name for name, parameter in model.named_parameters() if parameter.ndim == 0]:
        raise SettingsError(
            f"training.strategy: 'fsdp' cannot shard parameters without dimensions: {', '.join(scalars)}; "
            "expected 'ddp', or parameters of shape (1,)"
        )


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the items of the outermost lists of modules; linear maps, whose weights others read, are no layers."""
    layers: list[nn.Module] = []
    for child in model.children():
        items = list(child) if isinstance(child, nn.ModuleList) else _layers(child)
        layers += [item for item in items if not isinstance(item, nn.Linear)]
    return layers


def like_parameter(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Shard an optimizer tensor as its parameter is; one without dimensions stays as it is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor) or tensor.ndim == 0:
        return tensor
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)
