"""Fixtures: small runs in separate processes, and the digests to compare."""

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.support.files import sha256_of_file
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

SERVER = Path(__file__).with_name("fork_server.py")


def marked_reversals(count: int, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    halves = [generator.integers(3, 5, generator.integers(2, 6)) for _ in range(count)]
    return [np.concatenate([half, [5], half[::-1]]).astype(np.int32) for half in halves]


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Marked reversals w#w^R of four lengths, sampled uniformly for each length."""
    folder = tmp_path_factory.mktemp("data") / "prepared"
    splits = {"train": marked_reversals(120, 0), "valid": marked_reversals(30, 1)}
    write_prepared(
        folder,
        kind="formal_language",
        vocabulary=Vocabulary.from_symbols(["0", "1", "#"]),
        tokenizer={"level": "character"},
        splits=splits,
        log_probabilities={
            name: np.array([-(len(string) // 2) * np.log(2) for string in split]) for name, split in splits.items()
        },
        extra={"number_of_lengths": dict.fromkeys(splits, 4)},
    )
    return folder


@pytest.fixture(scope="session")
def small_settings(prepared_folder: Path) -> Callable[..., dict[str, Any]]:
    """Settings as a tree, the model in full or by its layers: two epochs of about 14 updates, dropout on, a checkpoint
    every few updates.
    """

    def build(model: str | dict[str, Any] = "1", **training: object) -> dict[str, Any]:
        if isinstance(model, str):
            model = {"d_model": 8, "d_ff": 8, "num_heads": 2, "layers": model, "dropout": 0.2}
        return {
            "task": "formal_language",
            "data": str(prepared_folder),
            "model": model,
            "training": {"max_epochs": 2, "checkpoint_every": 5, "num_threads": 1, **training},
        }

    return build


@dataclass(frozen=True)
class Starter:
    """Client of `fork_server.py`; the output of the runs goes to the log."""

    server: subprocess.Popen[str]
    log: Path

    def _ask(self, request: dict[str, Any]) -> dict[str, int]:
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def start(self, settings: dict[str, Any], folder: Path, **more: Any) -> int:
        """Start or resume a run and return its process id."""
        return self._ask({"settings": settings, "folder": str(folder), "log": str(self.log), **more})["pid"]

    def start_together(
        self,
        settings: dict[str, Any],
        folder: Path,
        size: int = 2,
        second: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> list[int]:
        """Start or resume a run in processes that train together; return their ids by rank.

        ``more`` has further parts of the request, ``second`` those of the second process alone.
        """
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        environments = [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        further = [{}, second or {}, *[{}] * size]
        return [
            self.start(settings, folder, environment=environment, **more, **own)
            for environment, own in zip(environments, further, strict=False)
        ]

    def wait(self, pid: int) -> int:
        """Wait for a run and return its exit status; negative if a signal ended it."""
        return self._ask({"wait": pid})["exit"]

    def finish(self, settings: dict[str, Any], folder: Path) -> None:
        """Start or resume a run and train it to its end."""
        assert self.wait(self.start(settings, folder)) == 0, self.log.read_text()


@pytest.fixture(scope="session")
def new_starter() -> Iterator[Callable[[Path], Starter]]:
    """Return a function that makes starters with a given log file; they share one server."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(SERVER)], text=True, env=environment, **pipes) as server:
        assert server.stdout is not None
        server.stdout.readline()  # wait until the server is ready, so that tests can time runs
        yield functools.partial(Starter, server)
        server.communicate()


@pytest.fixture
def starter(new_starter: Callable[[Path], Starter], tmp_path: Path) -> Starter:
    return new_starter(tmp_path / "log")


@pytest.fixture(scope="session")
def outcome() -> Callable[[Path], dict[str, str]]:
    """Return digests of the files that must be byte-identical."""

    def digests(run: Path) -> dict[str, str]:
        folder = RunFolder(run)
        newest = folder.checkpoints / str(max(checkpoint_updates(folder.checkpoints)))
        files = [*sorted(newest.iterdir()), folder.events, folder.best]
        return {path.name: sha256_of_file(path) for path in files}

    return digests


@pytest.fixture(scope="session")
def finished_run(
    new_starter: Callable[[Path], Starter], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Return an uninterrupted run, shared by all tests with the same settings."""
    made: dict[str, Path] = {}

    def make(settings: dict[str, Any]) -> Path:
        key = json.dumps(settings)
        if key not in made:
            folder = tmp_path_factory.mktemp("finished")
            new_starter(folder / "log").finish(settings, folder / "run")
            made[key] = folder / "run"
        return made[key]

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
