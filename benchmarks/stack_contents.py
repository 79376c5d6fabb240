"""Contents of a nondeterministic stack: time and memory at 1,024 tokens, and the ratio to the definition at 96.

    OMP_NUM_THREADS=1 python benchmarks/stack_contents.py [--output FILE.json]

Q 2, S 3, ten depths. The vectors have no part in the contents, so their size does not matter. Times are processor times
of the one thread, which other processes on the machine prolong less than the time on the clock; both forms take turns.
"""

import statistics
import time
from typing import Any

import torch
from memory import resident_bytes
from result_file import heading, parse_output, print_and_write
from torch import Tensor

from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_contents

STATES, SYMBOLS, DEPTHS = 2, 3, 10
LONG, SHORT, ROUNDS = 1024, 96, 5


def logits_of(num_steps: int) -> list[Tensor]:
    """Draw the logits of one sequence."""
    generator = torch.Generator().manual_seed(1)
    configuration = STATES, SYMBOLS
    shapes = [(*configuration, *configuration)] * 2 + [(*configuration, STATES)]
    return [torch.randn(1, num_steps, *shape, generator=generator) for shape in shapes]


def seconds(logits: list[Tensor], definition: bool = False) -> float:
    """Measure the processor time of one call."""
    start = time.process_time()
    nondeterministic_stack_contents(*logits, DEPTHS, definition=definition)
    return time.process_time() - start


def ratios() -> dict[str, Any]:
    """Measure both forms in turns."""
    logits = logits_of(SHORT)
    seconds(logits)
    rounds = [(seconds(logits), seconds(logits, definition=True)) for _ in range(ROUNDS)]
    fast, definition = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(slow / quick for quick, slow in rounds)
    return {"tokens": SHORT, "seconds": fast, "definition_seconds": definition, "times_faster": ratio}


def main() -> None:
    """Measure, print the results, and write them to a file if one is given."""
    output = parse_output(__doc__)
    torch.set_num_threads(1)
    compared = ratios()
    taken = seconds(logits_of(LONG))
    mebibytes = resident_bytes() / 2**20
    content = {
        **heading("OMP_NUM_THREADS=1 python benchmarks/stack_contents.py"),
        "sizes": {"states": STATES, "symbols": SYMBOLS, "depths": DEPTHS},
        "long": {"tokens": LONG, "seconds": taken, "peak_memory_mib": round(mebibytes)},
        "compared": compared,
    }
    print_and_write(content, output)


if __name__ == "__main__":
    main()
