"""What a sweep came to, to be read and to be kept."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import structattn
from structattn.reporting.figures import write_files
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import StructattnError
from structattn.support.files import write_atomically
from structattn.sweeps.comparison import Comparison, Verdict, comparisons_of, verdicts_of
from structattn.sweeps.figures import figures_of
from structattn.sweeps.sweep import SweepFolder, results_of
from structattn.sweeps.table import Result, Row, rows_of, rows_to_json, signatures_of
from structattn.sweeps.trials import trials_of


@dataclass(frozen=True)
class SweepResults:
    """All of it.

    Args:
        ended: the trials that have ended; others do not count.
        trials: how many there are to be.
        rows: one for each cell with a trial that has ended.
        signatures: sacrebleu's, where there are translations.
        comparisons: published numbers beside ours.
        verdicts: what became of the claims.
        runs: where the run folders are.
    """

    ended: Sequence[Result]
    trials: int
    rows: Sequence[Row]
    signatures: Sequence[str]
    comparisons: Sequence[Comparison]
    verdicts: Sequence[Verdict]
    runs: Path


def read_sweep(sweep: SweepSettings, path: Path) -> SweepResults:
    """The results in a sweep's folder, whether or not it is finished.

    Raises:
        StructattnError: no trial of the sweep has ended there.
    """
    folder = SweepFolder(path.absolute())
    trials = trials_of(sweep, folder.path)
    results = results_of(folder, trials)
    if not results:
        raise StructattnError(f"{path}: none of the sweep's {len(trials)} trials has ended there")
    rows = rows_of(results, folder.runs)
    cells = [dict(items) for items in dict.fromkeys(tuple(trial.cell.items()) for trial in trials)]
    comparisons = comparisons_of(sweep.published, rows)
    signatures = signatures_of(folder.runs / result.trial.name for result in results)
    verdicts = verdicts_of(sweep.claims, cells, rows)
    return SweepResults(results, len(trials), rows, signatures, comparisons, verdicts, folder.runs)


def write_results(path: Path, recipe: Path, sweep: SweepSettings, results: SweepResults) -> None:
    """Keep the results with the settings, the seeds and the version that they come from, as one JSON file.

    The recipe's figures lie beside it, as PNG and PDF.
    """
    figures = figures_of(sweep, results.rows, results.runs, path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        write_files(figure, path.parent)
    content = {
        "recipe": str(recipe),
        "version": structattn.__version__,
        "trials_ended": len(results.ended),
        "trials": results.trials,
        "rows": rows_to_json(results.rows),
        "signatures": list(results.signatures),
        "comparisons": [asdict(comparison) for comparison in results.comparisons],
        "claims": [asdict(verdict) for verdict in results.verdicts],
        "figures": [{"name": figure.name, "says": figure.caption} for figure in figures],
        "runs": [
            {
                "name": result.trial.name,
                "cell": result.trial.cell,
                "seed": result.trial.settings.seed,
                "drawn": result.trial.drawn,
                "score": result.score,
                "update": result.update,
            }
            for result in results.ended
        ],
        "settings": sweep.model_dump(mode="json", exclude_defaults=True, exclude={"published", "claims", "figures"}),
    }
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
