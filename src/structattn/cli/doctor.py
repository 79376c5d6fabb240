"""``structattn doctor``: show the environment and check the operators, or what plugins register."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from structattn.cli.options import Json
from structattn.cli.output import literal, print_json, print_table

if TYPE_CHECKING:
    from structattn.cli.contract_check import Verdict
    from structattn.cli.self_check import Outcome


def doctor(
    plugins: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.py]...", help="Plugins that are checked instead."),
    ] = None,
    json: Json = False,
) -> None:
    """Show versions, kernels, hardware and fast precisions, and check every implementation against its reference.

    With plugins, check that what they register does what it must. Mechanisms and cross-attention: whole sequences equal
    single steps, nothing depends on later positions, padding or other sequences, and so on; positions, formal
    languages, transductions and tasks likewise.

    Examples:
        structattn doctor
        structattn doctor decay.py
    """
    if plugins:
        _check(plugins, json)
        return
    from structattn.cli.self_check import all_outcomes

    outcomes, failed = all_outcomes(), "structattn: an implementation does not match its reference; please report this"
    if json:
        checks = [{**asdict(outcome), "wrong": outcome.wrong} for outcome in outcomes]
        print_json({"environment": environment(), "checks": checks})
    else:
        _print(outcomes)
    if any(outcome.wrong for outcome in outcomes):
        typer.echo(failed, err=True)
        raise typer.Exit(1)


def _check(plugins: Sequence[str], json: bool) -> None:
    from structattn.cli.contract_check import verdicts_on

    verdicts = verdicts_on(plugins)
    if json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        _print_verdicts(verdicts)
    if broken := sum(bool(verdict.problem) for verdict in verdicts):
        typer.echo(f"structattn: {broken} of {len(verdicts)} checks fail", err=True)
        raise typer.Exit(1)


def _print_verdicts(verdicts: "Sequence[Verdict]") -> None:
    from rich.table import Table

    table = Table("what is registered", "what it must do", "found")
    for each in verdicts:
        found = literal(each.problem or "yes")
        if each.problem:
            found.stylize("red")
        table.add_row(literal(f"{each.kind} {each.name}"), literal(each.rule), found)
    print_table(table)


def _print(outcomes: "Sequence[Outcome]") -> None:
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 3, 0, 0))
    for name, value in environment().items():
        facts.add_row(Text(name, style="bold"), Text(value))
    print_table(facts)
    typer.echo()
    checks = Table("operator", "implementation", "relative error")
    for outcome in outcomes:
        if outcome.error is None:
            checks.add_row(outcome.operator, outcome.implementation, Text(f"not available: {outcome.reason}"))
        else:
            verdict = "  [red]WRONG[/]" if outcome.wrong else ""
            checks.add_row(outcome.operator, outcome.implementation, f"{outcome.error:.1e}{verdict}")
    print_table(checks)


def environment() -> dict[str, str]:
    """Return versions, compiled kernels, number of threads, processor, GPU and fast precisions."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from structattn.operators.common.kernels import compiled_kernels
    from structattn.support import __version__
    from structattn.support.devices import default_device, processor_name, slow_bf16

    kernels, slow = compiled_kernels(), slow_bf16(default_device())
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "not installed; GPU kernels are not available"
    return {
        "structattn": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        **{name: version(name) for name in ("torch", "numpy", "safetensors", "pydantic")},
        "compiled kernels": f"yes, for {kernels[0]}"
        if kernels
        else "no; the reference implementations are used, which are much slower",
        "triton": triton,
        "threads": str(torch.get_num_threads()),
        "processor": processor_name(),
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "fast precisions": "float32; " + (f"not bf16, which is refused: {slow}" if slow else "bf16"),
    }
