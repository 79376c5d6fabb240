"""The results of a sweep, read from its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from structattn.settings.sweep import SweepSettings
from structattn.support.errors import StructattnError
from structattn.sweeps.added import AddedRun, read_added
from structattn.sweeps.comparison import ClaimResult, PublishedComparison, check_claims, compare_with_published
from structattn.sweeps.outcome import TrialResult
from structattn.sweeps.plan import Plan
from structattn.sweeps.sweep import failed_trials, pending_trials, read_results
from structattn.sweeps.table import TableRow, sacrebleu_signatures, table_rows
from structattn.sweeps.trials import Cell
from structattn.sweeps.worker import SweepFolder


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep.

    Args:
        rows: one for each cell with a trial that has ended.
        signatures: the sacrebleu signatures of translation scores.
        failed: the number of trials that failed when the sweep ended last, and have not ended since.
        without_scores: the other cells, with the number of their trials.
    """

    ended: Sequence[TrialResult]
    trials: int
    rows: Sequence[TableRow]
    signatures: Sequence[str]
    comparisons: Sequence[PublishedComparison]
    claims: Sequence[ClaimResult]
    runs: Path
    added: Sequence[AddedRun] = ()
    failed: int = 0
    without_scores: Sequence[tuple[Cell, int]] = ()

    @property
    def counts(self) -> str:
        """How many trials have ended, how many failed, and how many were stopped at a rung."""
        stopped = sum(trial.stopped for row in self.rows if row.savings for trial in row.savings.trials)
        ended = f"{len(self.ended)} of {self.trials} trials have ended"
        ended += f", {self.failed} failed" if self.failed else ""
        return ended + (f", {stopped} were stopped by successive halving" if stopped else "")


def read_sweep_results(
    sweep: SweepSettings, path: str | PathLike[str], trial_results: str | PathLike[str] | None = None
) -> SweepResults:
    """Read the results in a sweep's folder, whether or not all trials have ended.

    ``trial_results`` is the file of trials, for those without a run folder.

    Raises:
        StructattnError: no trial of the sweep has ended.
    """
    folder = SweepFolder(Path(path).absolute(), trial_results)
    brackets = Plan(sweep, folder).brackets()
    trials = [trial for bracket in brackets for trial in bracket.trials]
    results = read_results(folder, brackets)
    if not results:
        raise StructattnError(f"{path}: none of the {len(trials)} trials of the sweep has ended in this folder")
    pending = pending_trials(sweep, folder, brackets, results)
    rows = table_rows(results, brackets, sweep.splits_of_selected, pending)
    comparisons = compare_with_published(sweep, rows)
    signatures = sacrebleu_signatures(results)
    cells = [(bracket.trials[0].cell, len(bracket.trials)) for bracket in brackets if bracket.trials]
    claims = check_claims(sweep.claims, [cell for cell, _ in cells], rows)
    without_scores = [(cell, count) for cell, count in cells if all(row.cell != cell for row in rows)]
    return SweepResults(
        *(results, len(trials), rows, signatures, comparisons, claims, folder.runs, read_added(folder.path)),
        failed=len(({trial.name for trial in trials} & failed_trials(folder)) - {each.trial.name for each in results}),
        without_scores=without_scores,
    )


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is that of a sweep."""
    return SweepFolder(folder).settings.is_file()
