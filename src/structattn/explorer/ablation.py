"""Ablation: how much the validation loss of a run grows without a head or a sublayer."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import nn

from structattn.explorer.interventions import (
    SUBLAYERS,
    HeadOff,
    SublayerOff,
    intervened,
    layers_by_side,
    num_heads,
)
from structattn.loading.trained_run import TrainedRun
from structattn.runs.store import write_analysis
from structattn.support.progress import progress
from structattn.tasks.loaded import Side
from structattn.tasks.registry import kind_of


@dataclass(frozen=True)
class AblatedSublayer:
    """The validation cross-entropy without a sublayer, and without each of its heads, in the unit of the whole.

    Args:
        layer: index of the layer, from 0.
        sublayer: ``attention``, ``cross``, ``feedforward`` or ``stack``.
        side: ``encoder`` or ``decoder``; None for models with one sequence.
        module: the class of the sublayer, such as ``SoftmaxAttention``.
        whole: with zeros as the output of the sublayer.
        heads: with zeros as the output of a head, for each; empty for what has no heads, such as most stacks.
    """

    layer: int
    sublayer: str
    side: Side | None
    module: str
    whole: float
    heads: tuple[float, ...]


@dataclass(frozen=True)
class Ablation:
    """The validation cross-entropy of a run, whole and without parts of its model.

    Args:
        cross_entropy: in nats per token, of recognition per string.
    """

    cross_entropy: float
    sublayers: tuple[AblatedSublayer, ...]


def ablate(run: TrainedRun) -> Ablation:
    """Score the validation split of a run once as it is, and once without each head and each sublayer.

    Heads are ablated one at a time, as by Michel et al. (2019), section 3.2. What is off has zeros as its output; the
    other parts are not trained anew. Stacks over depth (``model.depth_stack``) belong to no sublayer and stay on.

    Cost: as many validations as there are heads and sublayers.

    Raises:
        UsageError: the model is no transformer of this package, or its layers are looped.
    """
    places = _places(run.model)  # refuses other models before their data are read
    training = run.settings.training.model_copy(update={"select_by": "cross_entropy"})  # not BLEU, which decodes
    task = kind_of(run).build(run.prepared, run.settings.model_copy(update={"training": training}))
    with progress("Validating", None, "batches") as advance:
        whole = task.validate(run.model, lambda: advance(1))
    with progress("Ablating", sum(1 + num_heads(layer) for layer in places.values()), "parts") as advance:

        def without(part: HeadOff | SublayerOff) -> float:
            with intervened(run.model, [part]):
                scores = task.validate(run.model, lambda: None)
            advance(1)
            return scores.cross_entropy

        sublayers = []
        for place, module in places.items():
            where = place.layer, place.sublayer, place.side
            heads = [HeadOff(place.layer, head, place.sublayer, place.side) for head in range(num_heads(module))]
            sublayers.append(AblatedSublayer(*where, type(module).__name__, without(place), tuple(map(without, heads))))
    return Ablation(whole.cross_entropy, tuple(sublayers))


def write_ablation(run: TrainedRun, ablation: Ablation) -> Path:
    """Write an ablation to ``analyses/ablation.json`` in the run folder."""
    return write_analysis(run.run_dir, "ablation", "ablation", {"update": run.update, **asdict(ablation)})


def _places(model: nn.Module) -> Mapping[SublayerOff, nn.Module]:
    """Return the sublayers of a model, first layer first, with their modules."""
    return {
        SublayerOff(index, name, side): residual.layer
        for side, layers in layers_by_side(model).items()
        for index, block in enumerate(layers.blocks)
        for name in SUBLAYERS
        if (residual := getattr(block, name)) is not None
    }
