"""What a worker does with a trial: make its data, train, score. Everything goes on where it was left."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from structattn.evaluation.evaluate import evaluate, is_scored
from structattn.support.errors import Interrupted, LockedError, StructattnError
from structattn.support.locks import exclusive_lock
from structattn.support.memory import memory_ran_out
from structattn.sweeps.data_preparation import make_data
from structattn.sweeps.trials import Trial
from structattn.training.train import train

LONGEST_MESSAGE = 20_000  # characters; what a pipe holds, so that a worker which tells its end need not wait


@dataclass(frozen=True)
class Job:
    """A trial to be done.

    Args:
        trial: what is trained.
        folder: the run folder.
        splits: on which it is scored when it has ended.
    """

    trial: Trial
    folder: Path
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How a worker came to the end of a job.

    Args:
        kind: "done"; "failed", and it would fail again; "busy", somebody else is at work on it; "interrupted", it
            was asked to stop; "killed", its process died.
        message: what went wrong.
    """

    kind: Literal["done", "failed", "busy", "interrupted", "killed"]
    message: str = ""


def perform(job: Job) -> Ending:
    """Bring a job to its end in this process, with one thread unless its settings say otherwise."""
    torch.set_num_threads(job.trial.settings.training.threads or 1)
    try:
        _make_data(job.trial)
        train(job.trial.settings, job.folder, resume="auto")
        for split in job.splits:
            if not is_scored(job.folder, split):
                evaluate(job.folder, split)
    except Interrupted as error:
        return Ending("interrupted", str(error))
    except LockedError as error:
        return Ending("busy", str(error))
    except StructattnError as error:
        return Ending("failed", str(error))
    except Exception as error:  # whatever it is, the other trials go on, and it is told in the end
        if memory_ran_out(error):  # neighbours may have had it: another time it may do
            return Ending("killed", f"memory ran out: {error}")
        return Ending("failed", traceback.format_exc()[-LONGEST_MESSAGE:])
    return Ending("done")


def _make_data(trial: Trial) -> None:
    """The prepared folder of a trial, unless it is there; of several workers, one makes it."""
    folder = trial.settings.data
    if trial.prepare is None or folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder.with_suffix(".lock"), "preparation"):
        if not folder.exists():
            make_data(folder, trial.prepare)
