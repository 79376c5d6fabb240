"""Fixtures: a tiny model, task and run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from structattn.runs.checkpoint import Identity
from structattn.runs.logs import EventLog, Timing
from structattn.runs.store import CheckpointStore
from structattn.settings.run import RunSettings, resolve_settings
from structattn.settings.training import SequenceBatches, TrainingSettings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.batches import Examples
from structattn.tasks.language_modeling.task import next_token_task
from structattn.tasks.task import SequenceTask
from structattn.text.folders.sequences import Sequences
from structattn.training.learner import Learner, build_learner
from structattn.training.progress import DataOrder, first_progress
from structattn.training.run import StopFlag, TrainingRun

SYMBOLS = 3  # without <pad>, <bos>, <eos>


class TinyModel(nn.Module):
    """Predicts the next symbol from the mean of the preceding embeddings, with dropout."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3 + SYMBOLS, 4)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(4, 1 + SYMBOLS)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        total = self.dropout(self.embedding(tokens)).cumsum(1)
        return self.output(total / torch.arange(1, tokens.shape[1] + 1)[:, None])


def sequences_of(lengths: list[int], seed: int = 0) -> Sequences:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(3, 3 + SYMBOLS, sum(lengths)).astype(np.int32)
    return Sequences(tokens, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def tiny_task() -> Callable[..., SequenceTask]:
    def build(loss: str = "sequence_sum", size: int = 2) -> SequenceTask:
        batches = SequenceBatches(batch_size=size)
        train = Examples(sequences_of([2, 3, 2, 3, 3, 5, 2, 2, 2]), batches, seed=1)
        return next_token_task(train, Examples(sequences_of([2, 3, 4], seed=1), batches), loss, 0.5)

    return build


@pytest.fixture
def tiny_learner() -> Callable[..., Learner]:
    def build(settings: TrainingSettings | None = None, dropout: float = 0.2) -> Learner:
        torch.manual_seed(1)
        return build_learner(TinyModel(dropout), settings or TrainingSettings(), "cpu")

    return build


@pytest.fixture
def tiny_run(
    tmp_path: Path, tiny_task: Callable[..., SequenceTask], tiny_learner: Callable[..., Learner]
) -> Iterator[Callable[..., TrainingRun]]:
    with ExitStack() as files:

        def build(folder: str = "run", **settings: object) -> TrainingRun:
            path = tmp_path / folder
            (path / "checkpoints").mkdir(parents=True)
            training = TrainingSettings.model_validate(settings)
            task = tiny_task(training.loss)
            return TrainingRun(
                training,
                task,
                tiny_learner(training),
                DataOrder(task, training.gradient_accumulation_steps),
                files.enter_context(EventLog(path / "events.jsonl")),
                files.enter_context(Timing(path / "timing.jsonl")),
                CheckpointStore(
                    path / "checkpoints", Identity("s", "d"), training.keep_checkpoints, path / "best.json"
                ),
                StopFlag(),
                lambda count=1, note="", **values: None,
                first_progress(training),
            )

        yield build


@pytest.fixture(scope="session")
def dyck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches of ten strings an epoch."""
    folder = tmp_path_factory.mktemp("data") / "dyck"
    prepare_formal_language(folder, "dyck", sizes=FormalLanguageSizes(40, 10, 2, (6, 8), (6, 8)))
    return folder


@pytest.fixture
def small_settings(dyck: Path) -> Callable[..., RunSettings]:
    """Settings of runs of less than a second."""

    def build(**training: object) -> RunSettings:
        model = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1, "dropout": 0.2}
        tree = {
            "task": "formal_language",
            "data": str(dyck),
            "model": model,
            "training": {"num_threads": 1, **training},
        }
        return resolve_settings(tree)

    return build
