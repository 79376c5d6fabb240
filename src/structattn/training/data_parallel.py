"""One model in several processes, each of which computes the gradients of its own batches: DDP and FSDP."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # missing in its __all__
from torch.nn.parallel import DistributedDataParallel

from structattn.tasks.task import AnyTask, Scores
from structattn.training.distributed import World

Strategy = Literal["ddp", "fsdp"]
_METHODS = ("attend", "initial_state", "step", "explain")  # of layers, besides forward


class Applied(nn.Module):
    """A model whose forward pass is a function of it: whatever the function computes is seen by DDP and FSDP.

    Args:
        model: the model.
    """

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

        Args:
            task: the task.
            batch: the batch.
            last: of the update; with DDP, its backward pass sums the gradients of all batches over the processes. With
                FSDP, that of each batch does.
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
    applied.unused = nn.Parameter(torch.zeros(1, device=next(model.parameters()).device))  # DDP warns if there is none
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


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the items of the outermost lists of modules."""
    found: list[nn.Module] = []
    for child in model.children():
        found += list(child) if isinstance(child, nn.ModuleList) else _layers(child)
    return found


def like_parameter(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Shard an optimizer tensor as its parameter is; one without dimensions stays as it is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(parameter, DTensor) or tensor.ndim == 0:
        return tensor
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)
