"""Read the results of a sweep and write them as one JSON file."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from structattn.report.figure import write_files
from structattn.settings.sweep import SweepSettings
from structattn.support import __version__
from structattn.support.errors import StructattnError
from structattn.support.files import create_folder, write_atomically
from structattn.sweeps.comparison import ClaimResult, PublishedComparison, check_claims, compare_with_published
from structattn.sweeps.figures import sweep_figures
from structattn.sweeps.folder import SweepFolder
from structattn.sweeps.plan import Plan
from structattn.sweeps.sweep import read_results
from structattn.sweeps.table import TableRow, rows_to_json, sacrebleu_signatures, table_rows
from structattn.sweeps.trial_result import TrialResult
from structattn.sweeps.trials import make_trials


@dataclass(frozen=True)
class SweepResults:
    """The results of a sweep.

    Args:
        ended: the results of the trials that have ended.
        trials: the total number of trials.
        rows: one for each cell with a trial that has ended.
        signatures: the sacrebleu signatures of translation scores.
        comparisons: our results compared with published numbers.
        claims: whether each claim holds for each cell.
        runs: the folder of the run folders.
    """

    ended: Sequence[TrialResult]
    trials: int
    rows: Sequence[TableRow]
    signatures: Sequence[str]
    comparisons: Sequence[PublishedComparison]
    claims: Sequence[ClaimResult]
    runs: Path

    @property
    def counts(self) -> str:
        """How many trials have ended, and how many were stopped at a rung."""
        stopped = sum(trial.stopped for row in self.rows if row.savings for trial in row.savings.trials)
        ended = f"{len(self.ended)} of {self.trials} trials have ended"
        return ended + (f", {stopped} were stopped by successive halving" if stopped else "")


def read_sweep_results(sweep: SweepSettings, path: Path, trial_results: Path | None = None) -> SweepResults:
    """Read the results in a sweep's folder, whether or not all trials have ended.

    Args:
        sweep: the settings of the sweep.
        path: the sweep's folder.
        trial_results: the folder of the results of single trials, for those without a run folder.

    Raises:
        StructattnError: no trial of the sweep has ended.
    """
    folder = SweepFolder(path.absolute(), trial_results)
    trials = make_trials(sweep, folder.path)
    brackets = Plan(sweep, folder).brackets()
    results = read_results(folder, brackets)
    if not results:
        raise StructattnError(f"{path}: none of the {len(trials)} trials of the sweep has ended in this folder")
    rows = table_rows(results, brackets, sweep.splits_of_selected)
    cells = [dict(items) for items in dict.fromkeys(tuple(trial.cell.items()) for trial in trials)]
    comparisons = compare_with_published(sweep, rows)
    signatures = sacrebleu_signatures(results)
    claims = check_claims(sweep.claims, cells, rows)
    return SweepResults(results, len(trials), rows, signatures, comparisons, claims, folder.runs)


def write_sweep_results(path: Path, recipe: Path, sweep: SweepSettings, results: SweepResults) -> None:
    """Write the results with their settings, seeds and package version as one JSON file.

    The figures of the recipe are written to the same folder as PNG and PDF.
    """
    figures = sweep_figures(sweep, results.rows, results.ended, results.runs, path.stem)
    create_folder(path.parent)
    for figure in figures:
        write_files(figure, path.parent)
    content = {
        "recipe": str(recipe),
        "version": __version__,
        "trials_ended": len(results.ended),
        "trials": results.trials,
        "rows": rows_to_json(results.rows),
        "signatures": list(results.signatures),
        "comparisons": [asdict(comparison) for comparison in results.comparisons],
        "claims": [asdict(claim) for claim in results.claims],
        "figures": [{"name": figure.name, "caption": figure.caption} for figure in figures],
        "runs": [
            {
                "name": result.trial.name,
                "cell": result.trial.cell,
                "seed": result.trial.settings.seed,
                "sampled": result.trial.sampled,
                "score": result.score,
                "update": result.update,
            }
            for result in results.ended
        ],
        "settings": sweep.model_dump(mode="json", exclude_defaults=True, exclude={"published", "claims", "figures"}),
    }
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
