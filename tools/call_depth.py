"""Count the files and functions that a reader follows through one operation, from its entry to the kernel call.

    python tools/call_depth.py [--list]

Runs a training step and a beam step of small softmax transformers under a profiler, and counts the distinct functions
of the package that are called, the entry included; comprehensions and lambdas belong to the function around them.
Those of ``fast`` do not count: it is a second form of what the modules say.
``--list`` prints the functions by file. Exits with 1 if a limit is exceeded.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

import torch

import structattn
from structattn.decoding import beam_search, start_translation
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language

PACKAGE = str(Path(structattn.__file__).parent) + "/"
TRAINING_STEP, BEAM_STEP = ("training/loop.py", "perform_update"), ("decoding/beam_search.py", "_step")
TRAINING_LIMITS, BEAM_LIMITS = (20, 43), (14, 45)  # files, functions
SIZES = {"d_model": 8, "d_ff": 16, "num_heads": 2}


class CallCounter:
    """Collects the package's functions that are called while ``entry`` runs.

    Args:
        entry: file below the package, and name of the function at which counting begins.
        skip: the first calls of the entry, not counted because they fill caches.
    """

    def __init__(self, entry: tuple[str, str], skip: int = 2) -> None:
        self.entry, self.skip, self.depth = entry, skip, 0
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Record a call; the signature is that of ``sys.setprofile``."""
        if event not in {"call", "return"} or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        function = file_and_name(frame.f_code)
        if function == self.entry:
            self.depth += 1 if event == "call" else -1
            self.skip -= event == "return"
        counts = not (function[1].endswith(">") or function[0].startswith("fast/"))
        if counts and self.skip < 0 and (self.depth or function == self.entry):
            self.functions.add(function)

    def counts(self) -> tuple[int, int]:
        """Return the number of files and of functions."""
        return len({file for file, _ in self.functions}), len(self.functions)


def file_and_name(code: CodeType) -> tuple[str, str]:
    """Return the file below the package and the qualified name of a code object."""
    return code.co_filename.removeprefix(PACKAGE), code.co_qualname


@contextmanager
def profiled(counter: CallCounter) -> Iterator[None]:
    """Profile the block with ``counter``."""
    sys.setprofile(counter)
    try:
        yield
    finally:
        sys.setprofile(None)


def count_training_step(counter: CallCounter) -> None:
    """Train a small language model with dropout on strings of a formal language for a few updates."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = FormalLanguageSizes(train=80, valid=8, test_per_length=1)
        prepare_formal_language(folder / "data", "dyck", sizes=sizes)
        tree = {
            "task": "formal_language",
            "data": str(folder / "data"),
            "model": {**SIZES, "layers": 2},
            "training": {"batches": {"kind": "sequences", "batch_size": 8}, "max_updates": 6, "num_threads": 1},
        }
        settings = resolve_settings(tree)
        with profiled(counter):
            structattn.train(settings, folder / "run")


def count_beam_step(counter: CallCounter) -> None:
    """Translate three random sentences with a small untrained encoder-decoder."""
    side = {"layers": 2}
    tree = {
        "task": "translation",
        "data": "unused",
        "model": {"kind": "encoder_decoder", **SIZES, "encoder": side, "decoder": side},
        "training": {"batches": "pairs"},
    }
    model = build_model(resolve_settings(tree).model, 20).eval()
    source, lengths = torch.randint(3, 20, (3, 7)), torch.tensor([7, 7, 5])
    with torch.no_grad(), profiled(counter):
        beam_search(model, start_translation(model, source, lengths), 10)


def report(name: str, counter: CallCounter, limits: tuple[int, int], as_list: bool) -> bool:
    """Print the counts of one operation; return whether they are within the limits."""
    files, functions = counter.counts()
    within = 0 < files <= limits[0] and functions <= limits[1]
    sys.stdout.write(f"{name}: {files} files (limit {limits[0]}), {functions} functions (limit {limits[1]})\n")
    if as_list:
        for file, group in groupby(sorted(counter.functions), key=lambda each: each[0]):
            sys.stdout.write(f"  {file}: {', '.join(function for _, function in group)}\n")
    return within


def main() -> int:
    """Count both operations."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the functions by file")
    as_list = parser.parse_args().list
    operations: list[tuple[str, tuple[str, str], Callable[[CallCounter], None], tuple[int, int]]] = [
        ("training step", TRAINING_STEP, count_training_step, TRAINING_LIMITS),
        ("beam step", BEAM_STEP, count_beam_step, BEAM_LIMITS),
    ]
    within = []
    for name, entry, run, limits in operations:
        counter = CallCounter(entry)
        run(counter)
        within.append(report(name, counter, limits, as_list))
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
