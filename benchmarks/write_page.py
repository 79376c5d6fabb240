"""Writes docs/benchmarks.md from the figures in benchmarks/results/: python benchmarks/write_page.py."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


def figures(name: str) -> dict[str, Any]:
    """One results file."""
    result: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text())
    return result


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"


def operators(results: dict[str, Any]) -> str:
    """Time, memory and rate of the operators."""
    small, long = results["small_stacks"], results["long_stacks"]
    beside = results["reference_of_the_nondeterministic_stack"]
    rows = [
        (f"nondeterministic, Q 2, S 3, m 5, n {n}", milliseconds(small["seconds"][f"nondeterministic-{n}"]))
        for n in (60, 100)
    ]
    rows += [("nondeterministic, Q 3, S 3, m 5, n 80", milliseconds(small["seconds"]["nondeterministic-3-3-80"]))]
    rows += [
        (
            f"nondeterministic, Q 2, S 3, m 5, n {n}",
            f"{milliseconds(long['seconds'][f'nondeterministic-{n}'])}, "
            f"{100 * long['part_of_matrix_product_rate'][str(n)]:.0f} % of the rate of a matrix product",
        )
        for n in (128, 256, 512)
    ]
    rows += [
        ("its reference, n 100", milliseconds(beside["reference_seconds"])),
        ("  times faster", f"{results['nondeterministic_times_faster_than_reference']:.0f}"),
        ("  part of the reference's peak memory, torch itself included", f"{beside['part_of_reference_memory']:.3f}"),
        ("growth from n 128 to 512", f"{long['growth_128_to_512']:.0f} times"),
        ("superposition, m 32, n 100", milliseconds(small["seconds"]["superposition-100"])),
        ("its reference", milliseconds(small["seconds"]["superposition-100-reference"])),
        ("  times faster", f"{small['superposition_times_faster_than_reference']:.0f}"),
    ]
    return table(("forward and backward, batch 10, float32", "median"), rows)


def every_operator(results: dict[str, Any]) -> str:
    """All operators at all lengths."""
    body = []
    for row in results["every_operator"]["rows"]:
        seconds = row["seconds"]
        times = row.get("times faster than reference, both")
        body.append(
            (
                row["operator"],
                str(row["length"]),
                milliseconds(seconds["forward"]),
                milliseconds(seconds["both"]),
                f"{times:,.0f}" if times else "",
                f"{row['times faster than fused softmax, forward']:.2g}",
                f"{row['times faster than fused softmax, both']:.2g}",
                f"{row['operations forward']:.2g}",
                f"{100 * row['part of matrix-product rate']:.1f} %",
            )
        )
    head = ("operator", "n", "forward", "with backward", "times faster than its reference")
    head += ("than fused softmax, forward", "with backward", "operations, forward", "part of matrix-product rate")
    return table(head, body)


def memory(results: dict[str, Any]) -> str:
    """By how much forward and backward raise the peak."""
    body = [
        (name, str(peak["length"]), f"{peak['auto'] / 2**20:.1f} MiB", f"{peak['reference'] / 2**20:.1f} MiB")
        for name, peak in results["every_operator"]["memory"].items()
        if peak
    ]
    return table(("operator", "n", "peak", "its reference's"), body)


def steps(results: dict[str, Any]) -> str:
    """Training steps beside the plain transformer's."""
    found = results["training_steps"]
    rows = [
        (
            model,
            *(
                cell
                for n in (60, 80)
                for cell in (
                    milliseconds(found[f"seconds_length_{n}"][model]),
                    f"{found[f'times_plain_length_{n}'][model]:.2f}",
                )
            ),
        )
        for model in found["seconds_length_60"]
    ]
    reversing, lstm = found["seconds_reversing_40"], found["times_lstm_length_60"]
    beside = ", ".join(f"{model} {times:.2f}" for model, times in lstm.items() if model != "LSTM")
    return (
        table(("model", "n 60", "times Tf", "n 80", "times Tf"), rows)
        + f"\nTimes the step of an LSTM at n = 60: {beside}.\n\nThe task transformer of Li et al. (2024) on 32 strings "
        + f"of 40 to reverse: {milliseconds(reversing['MLM'])}, with stack pointers in all five layers "
        + f"{milliseconds(reversing['MLM+stacks'])}, {found['times_without_stacks_reversing_40']:.2f} times that.\n"
    )


def growth(results: dict[str, Any]) -> str:
    """Of operators that are linear in the length, and of a copy of their values."""
    found = next(value for key, value in results["every_operator"].items() if key.startswith("growth"))
    return table(("", "times"), [(name, f"{times:.1f}") for name, times in found.items()])


def seeds(results: dict[str, Any]) -> str:
    """Validation differences after one epoch."""
    rows = results["rows"]
    columns = sorted({row["seed"] for row in rows})
    kinds = sorted({(row["model"], row["embedding_init"]) for row in rows}, reverse=True)
    values = {(row["model"], row["embedding_init"], row["seed"]): row["difference"] for row in rows}
    names = {"normal": "N(0, 1)", "uniform": "U(-0.1, 0.1)"}
    body = [
        (model, names[beginning], *(f"{values[model, beginning, seed]:.4f}" for seed in columns))
        for model, beginning in kinds
    ]
    return table(("model", "embeddings begin as", *(f"seed {seed}" for seed in columns)), body)


def sweeps(found: dict[str, Any]) -> str:
    """Sweeps whose workers and controllers were killed, and what a second worker gives."""
    words = {True: "the same run folders and table", False: "DIFFERENT results"}
    rows = [
        (engine, str(hits["worker"]), str(hits["controller"]), words[found[engine]["equal"]])
        for engine in ("pool", "ray")
        for hits in (found[engine]["kills_that_hit"],)
    ]
    return (
        f"`{found['command']}`: sweeps of {found['trials']} trials against a quiet one.\n\n"
        + table(("engine", "workers killed", "controllers killed", "came to"), rows)
        + f"\nTwo workers end {found['throughput_ratio']:.2f} times as many trials an hour as one "
        + f"({found['trials_per_hour_two_workers']:,.0f} against {found['trials_per_hour_one_worker']:,.0f}).\n"
    )


def translation_speed(found: dict[str, Any]) -> str:
    """Beam search with states that are kept, and without."""
    rows = found["results"]
    base = rows[0]["sentences/s"]
    named = {
        "states": "states are kept",
        "naive": "prefixes are read again",
        "loop": "and one sentence after the other",
    }
    body = [
        (row["system"], named[row["way"]], f"{row['sentences/s']:.1f}", f"{row['sentences/s'] / base:.2f}")
        for row in rows
    ]
    return table(("system", "way", "sentences/s", f"of {rows[0]['system']}'s"), body)


def efficiency(found: dict[str, Any]) -> str:
    """What training and translating with each system takes."""
    rows = found["results"]
    body = [
        (
            row["system"],
            f"{row['sentences/s']:.1f} ± {row['deviation']:.1f}",
            f"{row['sentences/s'] / rows[0]['sentences/s']:.2f}",
            f"{row['tokens']:,}",
            f"{row['tokens'] / rows[0]['tokens']:.2f}",
        )
        for row in rows
    ]
    batch = f"tokens of the largest batch in {found['memory_gib']:g} GiB"
    return table(("system", "sentences/s", "of base's", batch, "of base's"), body)


def same_in_batches(found: dict[str, Any]) -> str:
    """What became of the same sentences in other batches."""
    others = found["against batches of 1"]
    return (
        f"of {found['sentences']:,} sentences translated with a beam of {found['beam']}, "
        + ", ".join(f"{each['different']} in batches of {each['batches']}" for each in others)
        + " come out otherwise than one at a time."
    )


def page() -> str:
    """The whole page."""
    cpu, kills = figures("two-core-cpu"), figures("reliability_kills")
    text, plain, sampling = figures("wikitext-2"), figures("plain_eager"), figures("sampling")
    machine, translations = cpu["machine"], figures("decoding")
    cost = figures("translation_efficiency")
    count = kills["kills"]
    same = "the same digests" if kills["identical"] else "DIFFERENT digests"
    baselines = text["scores"]["test"]["baselines"]
    return f"""# Figures

Written by `python benchmarks/write_page.py` from `benchmarks/results/`, beside the commands that made them.
Tf is a transformer; +Sup has superposition stack attention in its middle layer, +Nd nondeterministic stack attention,
in recurrent models a stack of that kind.

## Operators

`python benchmarks/operators.py`, everything in one run; medians, but for the nondeterministic stack's reference,
which ran once;
{machine["processor"]}, {machine["threads"]} threads, {machine["instruction_set"]},
torch {machine["torch"]}. `python benchmarks/gpu.py` measures on a GPU; no figures of it are kept.

{operators(cpu)}
The rate counts n³/6 · (Q³S + Q²S) multiply-adds forward and twice that backward, against a float64 product of two
1500 x 1500 matrices at {cpu["long_stacks"]["matrix_product_gflops"]:.0f} GFLOP/s.

### Every operator

Float32. Batch, heads and sizes: stacks 10 (pointers 32, vectors of 256) beside causal softmax attention of 10 × 4 × 8
(32 × 8 × 32); the others 2 × 4 × 64 beside the same, receptive fields of one sequence. Nondeterministic: Q 2, S 3, m
5; superposition and stratified: m 32. References are measured at lengths at which they are not too slow. Operations
are those of the forward pass, a multiply-add two of them; their rate is told as part of that of a float32 product.

{every_operator(cpu)}
By how much forward and backward raise the peak of resident memory, each in a process of its own:

{memory(cpu)}
How many times longer forward and backward take at n = 8,192 than at 1,024, one sequence of 4 heads of 64:

{growth(cpu)}
## Training steps

The models of DuSell & Chiang (2024, section 6), ten strings of ww^R of one length, a whole step in the trainer.

{steps(cpu)}
## One epoch of w#w^R

`python benchmarks/demo_seeds.py`: 10,000 strings, learning rate 0.003; validation cross-entropy above the
bound, in nats per symbol.

{seeds(figures("demo_seeds"))}
Whether Tf+Nd finds its stack within one epoch depends on the draw: see [initialization](initialization.md).

## Real text

WikiText-2, words, a continuous stream; `recipes/text.yaml` (one stack layer between two of softmax, width 128) for
{text["minutes"]} minutes with one thread on a machine that was busy with other work, {
        text["updates"]
    } updates of 1,024 tokens. Test perplexity, ends of lines counted:

{
        table(
            ("model", "test perplexity"),
            [
                ("Tf+Nd", f"{text['scores']['test']['perplexity']:.1f}"),
                ("interpolated trigram", f"{baselines['trigram']['perplexity']:.1f}"),
                ("unigram", f"{baselines['unigram']['perplexity']:.1f}"),
            ],
        )
    }
## Translation

`OMP_NUM_THREADS=1 python benchmarks/decoding.py --repeats {
        translations["repeats"]
    } --output benchmarks/results/decoding.json`: {translations["sentences"]:,} sentences, a beam of {
        translations["beam"]
    }, the systems of You et al. (2020) at
their sizes with random weights and given lengths; the median of {
        translations["repeats"]
    } after one that is not timed, one thread. The paper has hc-sa 6 % and sh-x 30 % faster than base.

{translation_speed(translations)}
`OMP_NUM_THREADS=1 python benchmarks/translation_efficiency.py RUN ...`: runs of `table_2_small.yaml`, trained for two
epochs, on the {cost["sentences"]:,} sentences of Multi30k's test set in batches of 256, as their settings say (a beam
of 4, bfloat16 in training alone); the mean of {
        cost["timed"]
    }. A batch counts source and target tokens, padding included.

{efficiency(cost)}
## Interruptions

`python benchmarks/reliability_kills.py SETTINGS.yaml --kills 20`: a training run (dropout on, killed mid-epoch) that
received {count} SIGKILLs at random moments ended with {same} of weights, optimizer state and event log
as an undisturbed one.

`python benchmarks/reliability_decoding.py RUN`: {same_in_batches(figures("reliability_decoding"))}

{sweeps(figures("reliability_sweeps"))}
## The plain training loop

`python benchmarks/plain_eager.py`, one thread, ten strings of 60: our step takes {
        plain["ours_as_part_of_plain"]:.2f} of the time of the same step
in plain eager PyTorch ({milliseconds(plain["seconds"]["ours"])} against {milliseconds(plain["seconds"]["plain"])}).

`python benchmarks/sampling.py`: the slowest language gives {
        min(sampling["strings a second"].values()):,.0f} strings a second, the
slowest transduction {min(sampling["pairs a second"].values()):,.0f} pairs; our step of the plain training loop takes {
        10 / plain["seconds"]["ours"]:,.0f}.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
