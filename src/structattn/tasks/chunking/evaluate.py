"""A linear probe for chunks: how well hidden states of a run tell the chunk tags of CoNLL-2000."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.support.environment import name_of
from structattn.support.errors import DataError
from structattn.support.progress import progress
from structattn.support.seeds import derived_seed, numpy_generator
from structattn.support.shapes import Float, Int
from structattn.tasks.chunking.data import ChunkedSentence, majority_tags, read_chunked_sentences
from structattn.tasks.chunking.metrics import TaggingScores, tagging_scores
from structattn.tasks.chunking.word_features import WordFeatures
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.suite_analyses import write_suite_analysis
from structattn.text.reading import Notices

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
    latest after ``MAX_EPOCHS``; the weights with the lowest held-out loss are returned. ``after_epoch`` may
    raise to abort.

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


TRAIN_FILE: Final = "train.txt"
TEST_FILE: Final = "test.txt"
HELD_OUT: Final = 10  # the last sentence in ten of the training file, for early stopping


@dataclass(frozen=True)
class ChunkedCorpus:
    """Training and test sentences."""

    path: Path
    train: list[ChunkedSentence]
    test: list[ChunkedSentence]

    @property
    def num_fitted(self) -> int:
        """The number of sentences that the probe is trained on."""
        return len(self.train) - max(1, len(self.train) // HELD_OUT)


@dataclass(frozen=True)
class StreamScores:
    """Scores of one stream of a model.

    Args:
        stream: ``syntactic`` or ``semantic``; None for a model with a single stream.
        epoch: the epoch after which the held-out loss was lowest.
        scores: on the test sentences.
    """

    stream: str | None
    epoch: int
    scores: TaggingScores


def read_chunked_corpus(folder: Path, notices: Notices) -> ChunkedCorpus:
    """Read ``train.txt`` and ``test.txt``, as distributed for CoNLL-2000.

    Raises:
        DataError: a file is missing or malformed, or there are fewer than two training sentences.
    """
    train, test = (read_chunked_sentences(folder / name, notices) for name in (TRAIN_FILE, TEST_FILE))
    if len(train) < 2:
        raise DataError(folder / TRAIN_FILE, "has one sentence; expected at least two, one of them to hold out")
    return ChunkedCorpus(folder, train, test)


def majority_scores(corpus: ChunkedCorpus) -> TaggingScores:
    """Return the scores of the most frequent chunk tag of each part of speech, as given in the files."""
    tag_of, default = majority_tags(
        pair for each in corpus.train for pair in zip(each.parts_of_speech, each.chunks, strict=True)
    )
    predicted = [[tag_of.get(part, default) for part in each.parts_of_speech] for each in corpus.test]
    return tagging_scores([each.chunks for each in corpus.test], predicted)


def probe_chunking(run: LoadedRun, corpus: ChunkedCorpus) -> list[StreamScores]:
    """Train and score a linear probe on each stream of a run.

    Cost: memory for the hidden states of all words of the corpus, 4 bytes a number.

    Raises:
        DataError: a sentence cannot be encoded or is too long for the model; the message names its line.
    """
    tags = sorted({tag for each in corpus.train for tag in each.chunks})
    train, test = _features(run, corpus.train, "training"), _features(run, corpus.test, "test")
    return [_probe(run, corpus, tags, stream, train[stream], test[stream]) for stream in train]


def write_chunking(run: LoadedRun, corpus: ChunkedCorpus, scores: Sequence[StreamScores]) -> Path:
    """Write the scores, and those of the baseline, to ``analyses/chunking.json`` in the run folder."""
    content = {
        "corpus": name_of(corpus.path),
        "baseline": asdict(majority_scores(corpus)),
        "streams": [asdict(each) for each in scores],
    }
    return write_suite_analysis(
        run, "chunking", "chunking", content, (corpus.path / name for name in (TRAIN_FILE, TEST_FILE))
    )


def _features(run: LoadedRun, sentences: list[ChunkedSentence], name: str) -> dict[str | None, Features]:
    features = WordFeatures(run)
    encoded = [features.encode(each.words, each.path, each.line) for each in sentences]
    with progress(f"Hidden states of {name} sentences", len(encoded), "sentences") as advance:
        return features(encoded, advance)


def _probe(
    run: LoadedRun, corpus: ChunkedCorpus, tags: list[str], stream: str | None, train: Features, test: Features
) -> StreamScores:
    classes = _classes(corpus.train, tags)
    end = sum(len(each.words) for each in corpus.train[: corpus.num_fitted])
    fitted, held_out = LabelledFeatures(train[:end], classes[:end]), LabelledFeatures(train[end:], classes[end:])
    seed = derived_seed(run.settings.seed, "chunking probe")
    with progress(f"Training the probe of {stream or 'the'} hidden states", None, "epochs") as advance:
        probe = train_linear_probe(fitted, held_out, len(tags), seed, advance)
    predicted = iter([tags[index] for index in probe.predict(test)])
    of_sentences = [[next(predicted) for _ in each.words] for each in corpus.test]
    scores = tagging_scores([each.chunks for each in corpus.test], of_sentences)
    return StreamScores(stream, probe.epoch, scores)


def _classes(sentences: list[ChunkedSentence], tags: list[str]) -> Classes:
    index_of = {tag: index for index, tag in enumerate(tags)}
    return np.array([index_of[tag] for each in sentences for tag in each.chunks], np.int64)
