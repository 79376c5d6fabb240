"""Reliability: killed processes, damaged files, and translations in other batches."""

from typing import Any

from pages.tables import results_of, table


def distributed_kills(found: dict[str, Any]) -> str:
    """Describe the kills of processes that train together."""
    runs = found["ddp"], found["fsdp"]
    slowest = max(moment["seconds_to_end"] for run in runs for moment in run["moments"])
    digests = "the digests" if all(run["identical"] for run in runs) else "digests that DIFFER from those"
    return f"""`python benchmarks/reliability_distributed.py`: of {found["hardware"]["processes"]} processes that
train a run with dropout together, one was killed at {found["kills"]} random moments, with DDP and with FSDP. The
others ended within {slowest:.2f} seconds, and the resumed runs ended with {digests} of undisturbed ones."""


def same_in_batches(found: dict[str, Any]) -> str:
    """Return a sentence about translations in batches of other sizes."""
    others = found["compared with batches of 1"]
    changed = ", ".join(f"{each['different']} in batches of {each['batches']}" for each in others)
    return (
        f"{found['sentences']:,} sentences, a beam of {found['beam']}. Number of translations that differ\n"
        f"from translating one sentence at a time: {changed}."
    )


def kills(found: dict[str, Any]) -> str:
    """Return a table of the kills of each engine, and whether results are those of an uninterrupted sweep."""
    verdicts = {True: "identical run folders and table", False: "DIFFERENT results"}
    rows = [
        (engine, str(hits["worker"]), str(hits["controller"]), verdicts[found[engine]["equal"]])
        for engine in ("pool", "ray")
        for hits in (found[engine]["effective_kills"],)
    ]
    return table(("engine", "workers killed", "controllers killed", "result"), rows)


def sweeps(found: dict[str, Any]) -> str:
    """Return a table of sweeps with killed processes, and the throughput of a second worker."""
    return (
        f"`{found['command']}`:\n"
        + f"sweeps of {found['trials']} trials with random SIGKILLs, compared with an uninterrupted sweep.\n\n"
        + kills(found)
        + f"\nTwo workers complete {found['throughput_ratio']:.2f} times as many trials per hour as one "
        + f"({found['trials_per_hour_two_workers']:,.0f} against {found['trials_per_hour_one_worker']:,.0f}).\n"
    )


def halved_sweeps(found: dict[str, Any]) -> str:
    """Return a table of sweeps with successive halving and killed processes."""
    equal = (
        "the same event logs and checkpoints as"
        if found["survivors_equal_full"]
        else "results that DIFFER from those of"
    )
    return (
        f"`{found['command']}`:\n"
        + f"the same with successive halving, 5 cells of {found['trials'] // 5} restarts. "
        + f"The {found['survivors']} trials\nthat no rung stops have {equal} in a sweep without halving.\n\n"
        + kills(found)
    )


def halving_selection(found: dict[str, Any]) -> str:
    """Return a table of what successive halving selects, compared with the full grid, for each choice of rungs."""
    rows = [
        (
            ", ".join(map(str, row["halving"]["after"])),
            f"{row['cost']:.0%}",
            f"{sum(cell['difference'] <= 0.01 for cell in row['cells'])} of {len(row['cells'])}",
            f"{row['largest_difference']:.3f}",
        )
        for row in found["rows"]
    ]
    trials = found["rows"][0]["cells"][0]["trials"]
    return (
        f"`{found['command']}`: what successive halving (`keep: {found['rows'][0]['halving']['keep']}`) selects among "
        f"{trials} restarts\nof each cell of the recipe `stack_language_models/shared_pairs`, all of which were "
        "trained to their end. The difference is that of the\nbest validation score from the full grid's.\n\n"
        + table(("rungs, epochs", "cost", "cells within 0.01 nats", "largest difference, nats"), rows)
    )


def damaged_files(results: dict[str, Any]) -> str:
    """Return a paragraph about commands on damaged files."""
    outcomes, faults = results["outcomes"], len(results["faults"])
    return f"""`python benchmarks/fuzz_files.py --count {results["cases"]} --seed {results["seed"]}`: runs and prepared
folders were damaged in {results["cases"]:,} ways (bits, truncation, extension, exchanged files, numbers, nesting,
links, FIFOs, paths, YAML tags), with recomputed digests in {results["forged"]:,} cases, and
read by {", ".join(sorted(results["commands"]))}. {outcomes["refused"]:,} were refused in one line;
{outcomes["done"]:,} gave the result of undamaged files or, with recomputed digests, another;
{faults or "none"} ended in a traceback, in a signal, after 20 s or with more than 1 GB of memory. The longest
took {results["max_seconds"]:.1f} s, the largest {results["max_resident_bytes"] / 1e6:.0f} MB.
"""


def interrupted_commands(found: dict[str, Any]) -> str:
    """Return the sentence on commands that were killed or met a full disk, and were given again."""
    commands, interrupted = len(found["interrupted"]), sum(found["interrupted"].values())
    different = f"{len(found['faults'])} times" if found["faults"] else "never"
    return f"""`python benchmarks/interrupted_commands.py --count {found["cases"]}`: {commands} commands were
interrupted {interrupted} times, {found["killed"]} by SIGKILL and {found["full_disks"]} by a full disk, and
given again. This {different} ended with other files than an undisturbed command.
"""


def section() -> str:
    """Return the section on reliability."""
    killed = results_of("reliability_kills")
    digests = "the same digests" if killed["identical"] else "DIFFERENT digests"
    return f"""## Reliability

`python benchmarks/reliability_kills.py SETTINGS.yaml --kills 20`: a training run with dropout received {
        killed["kills"]
    } SIGKILLs
at random moments, also in the middle of epochs. It ended with {digests} of weights, optimizer state and event log as an
uninterrupted run.

{distributed_kills(results_of("reliability_distributed"))}

`python benchmarks/reliability_decoding.py RUN`: {same_in_batches(results_of("reliability_decoding"))}

{sweeps(results_of("reliability_sweeps"))}
{halved_sweeps(results_of("reliability_halving"))}
{halving_selection(results_of("halving_selection"))}
{damaged_files(results_of("fuzz_files"))}
{interrupted_commands(results_of("interrupted_commands"))}"""
