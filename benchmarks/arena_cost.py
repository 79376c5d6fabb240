"""CPU seconds of one epoch of each model of the arena, on marked reversal: ``python benchmarks/arena_cost.py --write``.

One thread; the difference of a training of two epochs and one of one epoch, in which start and end do not count, after
one that imports what the model needs.
"""

import argparse
import json
import tempfile
from pathlib import Path
from time import process_time

import torch

from structattn.settings.sweep import load_sweep
from structattn.sweeps.trials import Trial, make_trials
from structattn.sweeps.worker import prepare_trial_data
from structattn.training.run_training import train

LANGUAGE = "marked reversal"
FILE = Path(__file__).parent / "results/arena_cost.json"


def seconds_of_an_epoch(trial: Trial, folder: Path) -> float:
    """Return the CPU seconds of a training of two epochs without those of one of one epoch."""
    tree = trial.settings.model_dump(mode="json")
    taken = []
    for number, epochs in enumerate((1, 1, 2)):
        tree["training"]["max_epochs"] = epochs
        settings = type(trial.settings).model_validate(tree)
        before = process_time()
        train(settings, folder / f"{trial.name}-{number}", torchrun=False)
        taken.append(process_time() - before)
    return taken[2] - taken[1]


def main() -> None:
    """Measure, print, and write the file if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    parser.add_argument(
        "models", nargs="*", help="names in the recipe; the others keep what the file says; default: all"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    costs = json.loads(FILE.read_text(encoding="utf-8"))["cpu_seconds"] if arguments.models else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trial in make_trials(load_sweep("arena/small"), folder):
            model = trial.cell["model"]
            is_asked = not arguments.models or model in arguments.models
            if trial.restart == 0 and trial.cell["language"] == LANGUAGE and is_asked:
                prepare_trial_data(trial)
                costs[model] = round(seconds_of_an_epoch(trial, folder), 2)
                print(f"{model:>14}: {costs[model]:.2f}")
    if arguments.write:
        content = {"command": "python benchmarks/arena_cost.py --write", "language": LANGUAGE, "cpu_seconds": costs}
        FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
