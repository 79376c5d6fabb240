"""A worker of a sweep: prepare a trial's data, train it, and evaluate it. Every step resumes after an interruption."""

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from structattn.loading.evaluate import evaluate, is_scored
from structattn.runs.folder import RunFolder
from structattn.settings.budget import Budget
from structattn.support.environment import is_out_of_memory
from structattn.support.errors import Interrupted, LockedError, SettingsError, StructattnError
from structattn.support.files import create_folder_unflushed, exclusive_lock, flush_names
from structattn.support.progress import progress_in_worker
from structattn.sweeps.data_preparation import prepare_data
from structattn.sweeps.outcome import outcome_after, outcome_of_run
from structattn.sweeps.sources import write_sources
from structattn.sweeps.stored_outcome import outcome_path, read_outcome, write_outcome
from structattn.sweeps.trials import Trial
from structattn.training.distributed import LostProcessError
from structattn.training.run_training import train

MAX_MESSAGE_LENGTH = 20_000  # characters; matches a pipe's buffer, so a worker can exit before its result is read


@dataclass(frozen=True)
class Job:
    """A trial to train and evaluate.

    Args:
        trial: the trial.
        run_dir: its run folder.
        splits: the splits to evaluate after training.
        trial_results: the folder to which the results are written at the end, if any.
        pause_after: train no further; None: to the end.
    """

    trial: Trial
    run_dir: Path
    splits: tuple[str, ...] = ()
    trial_results: Path | None = None
    pause_after: Budget | None = None


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Args:
        outcome: ``done``; ``failed``, with an error that would occur again; ``busy``, the run folder is locked by
            another process; ``interrupted``, by a signal; ``crashed``, the worker process died or ran out of memory.
        message: the error message.
    """

    outcome: Literal["done", "failed", "busy", "interrupted", "crashed"]
    message: str = ""


def run_job(job: Job) -> JobResult:
    """Run a job in this process, with one thread unless its settings give another number."""
    torch.set_num_threads(job.trial.settings.training.num_threads or 1)
    try:
        with progress_in_worker(job.trial.title):
            _train_and_evaluate(job)
    except Interrupted as error:
        return JobResult("interrupted", str(error))
    except LockedError as error:
        return JobResult("busy", str(error))
    except StructattnError as error:
        return JobResult("crashed" if isinstance(error, LostProcessError) else "failed", str(error))
    except Exception as error:  # of any kind: the other trials continue, and it is reported at the end
        if is_out_of_memory(error):  # other jobs may have used the memory, so a retry can succeed
            return JobResult("crashed", f"out of memory: {error}")
        return JobResult("failed", traceback.format_exc()[-MAX_MESSAGE_LENGTH:])
    return JobResult("done")


def _train_and_evaluate(job: Job) -> None:
    _prepare_trial_data(job.trial)
    train(job.trial.settings, job.run_dir, resume="auto", torchrun=False, pause_after=job.pause_after)
    for split in job.splits:
        if not is_scored(job.run_dir, split):
            evaluate(job.run_dir, split)
    _record_outcome(job)
    flush_names_of(job)


def _record_outcome(job: Job) -> None:
    """Write the results, unless those of a paused run are there already, or it has gone on meanwhile.

    Raises:
        SettingsError: the run is paused before its first validation.
    """
    budget, outcome = job.pause_after, outcome_of_run(job.run_dir)
    if budget is not None:
        outcome = outcome_after(job.run_dir, job.trial.settings.training, budget)
        if outcome is not None and not outcome.validations_within(budget):
            raise SettingsError(
                f"{job.run_dir}: no validation within {budget}, by which trials are compared; expected a smaller "
                "training.validate_every, or a later rung in halving.after"
            )
    if job.trial_results is None or outcome is None:
        return
    stored = read_outcome(job.trial_results, job.trial)
    if stored is not None and budget is None and (stored.end, stored.validations) == (outcome.end, outcome.validations):
        outcome = stored.joined(outcome)  # another sweep may have evaluated other splits
    if stored is None or budget is None or not stored.reaches(budget):
        write_outcome(job.trial_results, job.trial, job.run_dir, outcome)


def flush_names_of(job: Job) -> None:
    """Flush the names of a job's data, run and scores to disk: a worker may have been killed before it did so."""
    scores = [job.run_dir / "scores" / f"{split}.json" for split in job.splits]
    of_run = (job.trial.settings.data, RunFolder(job.run_dir).card, *scores) if job.run_dir.exists() else ()
    for path in (*of_run, *([] if job.trial_results is None else [outcome_path(job.trial_results, job.trial)])):
        flush_names(path)


def _prepare_trial_data(trial: Trial) -> None:
    """Prepare the data of a trial unless they exist; the lock lets one of several workers do it."""
    folder = trial.settings.data
    if trial.prepare is None or folder.exists():
        return
    create_folder_unflushed(folder.parent)  # its name is flushed with that of the data
    with exclusive_lock(folder.with_suffix(".lock"), "preparation"):
        if not folder.exists():
            write_sources(trial)
            prepare_data(folder, trial.prepare)
