"""Write docs/derivatives.md: which transforms each operator supports, and which it refuses.

    python tools/write_derivatives_page.py [--check]

Applies every transform to the first sample of every operator of tests/operators/catalogue.py, and compares the results
with the definition; an outcome other than the declared one is an error. ``--check`` applies and writes nothing: it
exits with 1 if the page differs from what the catalogue declares.
"""

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "operators"))

from catalogue import CATALOGUE, Operator  # noqa: E402
from transforms import TRANSFORMS, Transform, outcome  # noqa: E402

PAGE = ROOT / "docs" / "derivatives.md"
GROUPS = {
    "Reverse mode": ("backward", "func.grad", "vjp", "jacrev", "double backward", "grad(grad)"),
    "Maps": ("vmap", "vmap, last input", "vmap, lengths", "vmap(grad)", "vmap(grad), first input"),
    "Forward mode": ("jvp", "dual_level", "jvp(vmap)", "vmap(jvp)", "jvp(grad)", "hessian", "compile(jvp)"),
    "Modes": ("compile", "export", "inference_mode", "autocast", "deterministic", "threads", "fork"),
}
INTRODUCTION = """# Derivatives and modes

Written by `python tools/write_derivatives_page.py` from the catalogue in `tests/operators/catalogue.py`, whose tests
apply every transform to every sample of every operator and compare the result with the definition under plain
autograd, loops and finite differences. Operators run as `implementation="auto"` on a CPU.

- **yes**: the result is correct.
- **no**: `NotImplementedError`, whose message names the operator and the remedy; never a wrong result. Most often the
  remedy is `implementation="reference"`, which torch can differentiate in any way.
- **–**: the operator takes no lengths.

`vmap` joins the mapped dimension with the batch, so that the kernel is called once. Where weights that the batch
shares are mapped (`recurrent`, `heads` and `bias` of `stack_rnn`, `bottom` of the nondeterministic stack), and with
dropout, the kernel is called once for each index. In forward mode (`jvp`, `jacfwd`, `hessian`, `dual_level`), where
the table says yes, the definition runs in place of the kernel, at its cost. Within transforms,
`nondeterministic_stack_step` and `stack_rnn_step` run as the definition. `gaussian_weights` has no tensors to
differentiate. `torch.compile` is tested with `fullgraph=True`, with gradients where there are any; torch itself does
not transform compiled functions (`torch.func.grad(torch.compile(f))`): compile the transformed function instead.
Layers exported by `torch.export` serve any batch size and, but for DeltaProduct and StackTrans, whose loops tracing
unrolls, any number of steps.

`fork` is a call of the operator in a process forked from one that has called it. Whole models compute with torch's own
threads as well, which do not survive `os.fork`: the first large product in the child waits forever. Call
`torch.set_num_threads(1)` before the first computation of the parent, or start processes with
`multiprocessing.get_context("forkserver")`.
"""


def declared(operator: Operator, transform: Transform) -> str:
    """Return the cell that the catalogue declares."""
    if not any(transform.fits(sample) for sample in operator.samples.values()):
        return "–"
    return "no" if transform.refused_by(operator) else "yes"


def measured(operator: Operator, transform: Transform) -> str:
    """Return the cell by applying the transform to the first sample that fits; AssertionError if it is not declared."""
    cell = declared(operator, transform)
    sample = next((sample for sample in operator.samples.values() if transform.fits(sample)), None)
    if sample is not None:
        found = {"correct": "yes", "refused": "no"}[outcome(operator, sample, transform)]
        if found != cell:
            raise AssertionError(f"{operator.name}, {transform.name}: declared {cell!r}, found {found!r}")
    return cell


def table(names: tuple[str, ...], cell: Callable[[Operator, Transform], str]) -> str:
    """Return the table of some transforms."""
    transforms = [next(transform for transform in TRANSFORMS if transform.name == name) for name in names]
    rows = [["operator", *names], ["---"] * (1 + len(names))]
    rows += [[f"`{operator.name}`", *(cell(operator, x) for x in transforms)] for operator in CATALOGUE]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def page(cell: Callable[[Operator, Transform], str]) -> str:
    """Return the whole page."""
    parts = [f"## {title}\n\n{table(names, cell)}\n" for title, names in GROUPS.items()]
    return "\n".join([INTRODUCTION, *parts])


def main() -> int:
    """Write or check the page."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page(declared))
    PAGE.write_text(page(measured), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
