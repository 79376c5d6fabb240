"""Sweeps: train a grid of trials in parallel, select the best of each cell, compare with published numbers.

- ``run_sweep``: train all trials of a sweep with an engine and return the table of results.
- ``make_trials``, ``Trial``: the trials of a sweep.
- ``ProcessPoolEngine``, ``RayEngine``, ``SlurmEngine``: engines that run jobs; ``Engine`` is their protocol.
- ``SweepStatus``: the status of the jobs, passed to the progress callback.
- ``read_sweep_results``, ``write_sweep_results``, ``SweepResults``, ``TableRow``: the results of a sweep;
  to write them, the extra ``plot`` is needed.
- ``add_run``, ``AddedRun``: a run that was trained elsewhere, beside the trials.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.sweeps.added import AddedRun, add_run
    from structattn.sweeps.engines import ProcessPoolEngine, RayEngine, SlurmEngine
    from structattn.sweeps.report import write_sweep_results
    from structattn.sweeps.results import SweepResults, read_sweep_results
    from structattn.sweeps.scheduler import Engine, SweepStatus
    from structattn.sweeps.sweep import run_sweep
    from structattn.sweeps.table import TableRow
    from structattn.sweeps.trials import Trial, make_trials

__all__ = [
    "AddedRun",
    "Engine",
    "ProcessPoolEngine",
    "RayEngine",
    "SlurmEngine",
    "SweepResults",
    "SweepStatus",
    "TableRow",
    "Trial",
    "add_run",
    "make_trials",
    "read_sweep_results",
    "run_sweep",
    "write_sweep_results",
]

__getattr__, __dir__ = lazy_exports(__name__)
