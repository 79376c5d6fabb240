"""A linear classifier of frozen features: softmax regression, trained with early stopping on held-out data."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from structattn.support.seeds import numpy_generator

LEARNING_RATE = 1e-3
BATCH_SIZE = 256
MAX_EPOCHS = 100
PATIENCE = 3  # epochs without a lower held-out loss

Features = Float[np.ndarray, "words d_model"]
Classes = Int[np.ndarray, " words"]


@dataclass(frozen=True)
class LabelledFeatures:
    """Features with their classes."""

    features: Features
    classes: Classes


@dataclass(frozen=True)
class LinearProbe:
    """argmax_c (W (x - mean) / deviation + b)_c.

    Args:
        weight: W.
        bias: b.
        mean: of each feature in the training data.
        deviation: the standard deviation of each feature there; 1 where a feature is constant.
        epoch: the epoch of the weights, counted from 1.
    """

    weight: Float[Tensor, "classes d_model"]
    bias: Float[Tensor, " classes"]
    mean: Float[Tensor, " d_model"]
    deviation: Float[Tensor, " d_model"]
    epoch: int = 0

    def logits(self, features: Float[Tensor, "words d_model"]) -> Float[Tensor, "words classes"]:
        """Return the logits of each class."""
        return F.linear((features - self.mean) / self.deviation, self.weight, self.bias)

    @torch.no_grad()
    def predict(self, features: Features) -> Classes:
        """Return the most probable class of each row."""
        return self.logits(torch.from_numpy(features)).argmax(dim=1).numpy()


def train_linear_probe(
    train: LabelledFeatures,
    held_out: LabelledFeatures,
    num_classes: int,
    seed: int,
    after_epoch: Callable[[], object] = lambda: None,
) -> LinearProbe:
    """Train a linear classifier: cross-entropy, Adam at 0.001, batches of 256 words, all weights 0 at the start.

    Features are standardized, so that the result does not depend on the scale of a layer; that is an affine map, which
    the linear layer could learn. Training ends after ``PATIENCE`` epochs without a lower held-out loss, and at the
    latest after ``MAX_EPOCHS``; the weights with the lowest held-out loss are returned.

    Args:
        train: what is trained on.
        held_out: decides when training ends.
        num_classes: the number of classes.
        seed: of the order of the batches.
        after_epoch: called after each epoch; may raise to abort.

    Cost: each epoch takes O(words d_model num_classes) time.
    """
    mean, deviation = (torch.from_numpy(each) for each in _moments(train.features))
    weight = torch.zeros(num_classes, train.features.shape[1], requires_grad=True)
    bias = torch.zeros(num_classes, requires_grad=True)
    probe = best = LinearProbe(weight, bias, mean, deviation)
    optimizer, lowest = torch.optim.Adam([weight, bias], lr=LEARNING_RATE), float("inf")
    for epoch in range(1, MAX_EPOCHS + 1):
        _train_epoch(probe, train, optimizer, numpy_generator(seed, "linear probe", epoch))
        loss = _mean_loss(probe, held_out)
        if loss < lowest:
            best = replace(probe, weight=weight.detach().clone(), bias=bias.detach().clone(), epoch=epoch)
            lowest = loss
        after_epoch()
        if epoch - best.epoch >= PATIENCE:
            break
    return best


def _moments(features: Features) -> tuple[Features, Features]:
    """Return the mean and the standard deviation of each feature, accumulated in float64."""
    mean, deviation = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    deviation[deviation == 0] = 1
    return mean.astype(np.float32), deviation.astype(np.float32)


def _train_epoch(
    probe: LinearProbe, data: LabelledFeatures, optimizer: torch.optim.Optimizer, generator: np.random.Generator
) -> None:
    order = generator.permutation(len(data.classes))
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        optimizer.zero_grad()
        logits = probe.logits(torch.from_numpy(data.features[rows]))
        F.cross_entropy(logits, torch.from_numpy(data.classes[rows])).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def _mean_loss(probe: LinearProbe, data: LabelledFeatures) -> float:
    logits = probe.logits(torch.from_numpy(data.features))
    return F.cross_entropy(logits, torch.from_numpy(data.classes)).item()
