"""Write docs/benchmarks.md from the files in benchmarks/results/: ``python benchmarks/write_page.py``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


def results_of(name: str) -> dict[str, Any]:
    """Read a results file."""
    result: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text())
    return result


def where_measured(name: str, describe: Callable[[dict[str, Any]], str]) -> str:
    """Return the description of results; nothing where there are none."""
    return describe(results_of(name)) if (HERE / "results" / f"{name}.json").exists() else ""


def distributed_kills(found: dict[str, Any]) -> str:
    """Describe the kills of processes that train together."""
    runs = found["ddp"], found["fsdp"]
    slowest = max(moment["seconds_to_end"] for run in runs for moment in run["moments"])
    digests = "the digests" if all(run["identical"] for run in runs) else "digests that DIFFER from those"
    return f"""`python benchmarks/reliability_distributed.py`: of {found["hardware"]["processes"]} processes that
train a run with dropout together, one was killed at {found["kills"]} random moments, with DDP and with FSDP. The
others ended within {slowest:.1f} seconds, and the resumed runs ended with {digests} of undisturbed ones."""


def explorer(found: dict[str, Any]) -> str:
    """Describe the explorer's size and speed."""
    first, other, hover = (
        found[f"milliseconds {name}"] for name in ("to the first head", "to another head", "of hovering")
    )
    return f"""## The explorer

`{found["command"]}`: a recording of {found["tokens"]:,} tokens, sixteen heads and a stack, in {
        found["browser"]
    } without a
GPU, at a load average of {found["load average at the start"]:.1f} on {found["processors"]} processors.
The page has {found["bytes beside the data"] / 1e3:.0f} kB beside {found["bytes of the page"] / 1e6:.0f} MB of data.

{
        table(
            ("until", "median", "other"),
            [
                (
                    "the first head is shown",
                    f"{first['median']:,.0f} ms",
                    f"{first['median of processor time']:,.0f} ms of processor time in the page",
                ),
                ("another head is shown", f"{other['median']:,.0f} ms", f"largest {other['largest']:,.0f} ms"),
                (
                    "the value under the pointer is shown",
                    f"{hover['median']:,.0f} ms",
                    f"95 %: {hover['95 %']:,.0f} ms",
                ),
            ],
        )
    }
"""


def interventions(found: dict[str, Any]) -> str:
    """Return a table of the time from a request with an intervention to its recording."""
    rows = [
        (name, f"{times['median']:,.0f} ms", f"{times['95 %']:,.0f} ms")
        for name, times in found["milliseconds"].items()
    ]
    return (
        f"`{found['command']}`: `explore --serve`, from a request with an intervention to its recording, of "
        f"{found['tokens']} tokens at the\nsizes of DuSell & Chiang (2024, section 6), at a load average of "
        f"{found['load average']} on {found['processors']} processors.\n\n"
        + table(("model", "median", "95 %"), rows)
        + "\n"
    )


def ratios(found: dict[str, Any]) -> str:
    """Return a table of all ratios that ``make bench`` prints."""
    rows = []
    for ratio in found["ratios"]:
        low, high = ratio["quartiles"]
        target = "" if ratio["target"] is None else f"{ratio['target']:.2f}"
        compared = f"{ratio['what']} / {ratio['relative_to']}"
        rows.append((ratio["group"], compared, f"{ratio['median']:.2f}", f"{low:.2f} to {high:.2f}", target))
    return f"""`{found["command"]}`, {found["minutes"]} minutes, {found["date"]}, {found["processor"]}, torch
{found["torch"]}. The speed of one thing relative to another: both are measured in every round, one after the other; the
median and the quartiles are those of the rounds' ratios. One thread and processor time; for language models two threads
and wall time. The operations of the nondeterministic stack are counted as in the next section; its tables are floats,
the numbers of the product doubles. Targets are this project's own.

{table(("what", "compared", "speed", "quartiles", "target"), rows)}"""


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"


def operators(results: dict[str, Any]) -> str:
    """Return a table of the time, memory and speed of the stack operators."""
    small, long = results["small_stacks"], results["long_stacks"]
    reference = results["nondeterministic_stack_reference"]
    rows = [
        (f"nondeterministic, Q 2, S 3, m 5, n {n}", milliseconds(small["seconds"][f"nondeterministic-{n}"]))
        for n in (60, 100)
    ]
    rows += [("nondeterministic, Q 3, S 3, m 5, n 80", milliseconds(small["seconds"]["nondeterministic-3-3-80"]))]
    rows += [
        (
            f"nondeterministic, Q 2, S 3, m 5, n {n}",
            f"{milliseconds(long['seconds'][f'nondeterministic-{n}'])}, "
            f"{100 * long['fraction_of_matrix_product_rate'][str(n)]:.0f} % of the speed of a matrix product",
        )
        for n in (128, 256, 512)
    ]
    rows += [
        ("nondeterministic, reference, n 100", milliseconds(reference["reference_seconds"])),
        (
            "nondeterministic, speedup over the reference, n 100",
            f"{results['nondeterministic_times_faster_than_reference']:.0f}",
        ),
        (
            "nondeterministic, fraction of the reference's peak memory (including torch), n 100",
            f"{reference['fraction_of_reference_memory']:.3f}",
        ),
        ("nondeterministic, time at n 512 / time at n 128", f"{long['growth_128_to_512']:.0f}"),
        ("superposition, m 32, n 100", milliseconds(small["seconds"]["superposition-100"])),
        ("superposition, reference, n 100", milliseconds(small["seconds"]["superposition-100-reference"])),
        (
            "superposition, speedup over the reference, n 100",
            f"{small['superposition_times_faster_than_reference']:.0f}",
        ),
    ]
    return table(("forward and backward, batch 10, float32", "median"), rows)


def every_operator(results: dict[str, Any]) -> str:
    """Return a table of all operators at all lengths."""
    body = []
    for row in results["every_operator"]["rows"]:
        seconds = row["seconds"]
        times = row.get("times faster than reference, forward and backward")
        body.append(
            (
                row["operator"],
                str(row["length"]),
                milliseconds(seconds["forward"]),
                milliseconds(seconds["forward and backward"]),
                f"{times:,.0f}" if times else "",
                f"{row['times faster than fused softmax, forward']:.2g}",
                f"{row['times faster than fused softmax, forward and backward']:.2g}",
                f"{row['forward operations']:.2g}",
                f"{100 * row['fraction of matrix-product rate']:.1f} %",
            )
        )
    head = ("operator", "n", "forward", "forward and backward", "speedup over reference")
    head += (
        "speedup over fused softmax, forward",
        "forward and backward",
        "forward operations",
        "of matrix-product rate",
    )
    return table(head, body)


def memory(results: dict[str, Any]) -> str:
    """Return a table of the increase of peak memory by forward and backward."""
    body = [
        (name, str(peak["length"]), f"{peak['auto'] / 2**20:.1f} MiB", f"{peak['reference'] / 2**20:.1f} MiB")
        for name, peak in results["every_operator"]["memory"].items()
        if peak
    ]
    return table(("operator", "n", "operator, peak increase", "reference, peak increase"), body)


def steps(results: dict[str, Any]) -> str:
    """Return a table of training steps, relative to those of the plain transformer."""
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
    relative = ", ".join(f"{model} {times:.2f}" for model, times in lstm.items() if model != "LSTM")
    return (
        table(("model", "n = 60", "relative to Tf", "n = 80", "relative to Tf"), rows)
        + f"\nRelative to the step of an LSTM at n = 60: {relative}.\n\n"
        + "The transformer of Li et al. (2024) on 32 strings of length 40 (reverse string): "
        + f"{milliseconds(reversing['MLM'])} without stacks, "
        + f"{milliseconds(reversing['MLM+stacks'])} with stack pointers in all five layers "
        + f"(ratio {found['times_without_stacks_reversing_40']:.2f}). Their empty stack is a learned vector.\n"
    )


def growth(results: dict[str, Any]) -> str:
    """Return a table of how time grows with length, for operators of linear cost and a copy of their values."""
    found = next(value for key, value in results["every_operator"].items() if key.startswith("growth"))
    return table(
        ("operation", "time at 8,192 / time at 1,024"), [(name, f"{times:.1f}") for name, times in found.items()]
    )


def profile(found: dict[str, Any]) -> str:
    """Return a table of the parts of a training step, and of the time of calls in them."""
    models = found["milliseconds"]
    parts = next(iter(models.values()))["step"]
    columns = [times[kind] for times in models.values() for kind in ("step", "calls")]
    rows = [(part, *(f"{column[part]:.2f}" for column in columns)) for part in parts]
    rows.append(("together", *(f"{sum(column.values()):.2f}" for column in columns)))
    header = ("part, ms", *(name for model in models for name in (model, "of which calls")))
    return (
        f"`{found['command']}`: processor time of the parts of a step at n = 60;\ncalls are the same parts on one "
        "string of two symbols, where there is next to no arithmetic.\n\n" + table(header, rows)
    )


def alternatives(found: dict[str, Any], profiled: dict[str, Any]) -> str:
    """Return a table of other ways to take a training step, and what training restarts together can gain at most."""
    times, restarts = found["relative_times"], found["restarts"]
    rows = [(model, f"{each['together']:.2f}", f"{each['compiled']:.2f}") for model, each in times.items()]
    slowest = max(each["seconds_to_compile"] for each in times.values())
    step, calls = (sum(profiled["milliseconds"]["Tf"][kind].values()) for kind in ("step", "calls"))
    longest = (
        40 + 40 * restarts / (restarts + 1)
    ) / 60  # the mean of the longest of uniform lengths, of the mean length
    gains = [step / ((step - calls) * positions + calls / restarts) for positions in (1, longest)]
    return f"""`{found["command"]}`:
processor time of other ways to take these steps, relative to the training loop's; more than 1 is slower. Together:
{restarts} restarts by `torch.vmap` over their parameters, under favourable conditions (the same dropout masks and
learning rate, batches of one length). Compiled: by `torch.compile`, which takes up to {slowest:.0f} s at first and
drops other elements.

{table(("model", "together", "compiled"), rows)}
Sweeps therefore train each restart alone. Kernels for a batch of parameters would save nothing but calls: by the
profile of Tf, a factor of {gains[0]:.2f} at most if all restarts had batches of the same length, and {gains[1]:.2f}
with lengths from 40 to 80 in an order of their own, where batches are padded to the longest of {restarts}.
"""


def seeds(results: dict[str, Any]) -> str:
    """Return a table of the differences of both models of the demo, a row for each seed."""
    models = list(dict.fromkeys(row["model"] for row in results["rows"]))
    values = {(row["seed"], row["model"]): f"{row['difference']:.4f}" for row in results["rows"]}
    numbers = list(dict.fromkeys(seed for seed, _ in values))
    return table(("seed", *models), [(str(seed), *(values[seed, model] for model in models)) for seed in numbers])


def damaged_files(results: dict[str, Any]) -> str:
    """Return a paragraph about commands on damaged files."""
    outcomes, faults = results["outcomes"], len(results["faults"])
    return f"""`python benchmarks/fuzz_files.py --count {results["cases"]} --seed {results["seed"]}`: runs and prepared
folders were damaged in {results["cases"]:,} ways (bits, truncation, extension, exchanged files, numbers, nesting,
links, FIFOs, paths, YAML tags), with recomputed digests in {results["forged"]:,} cases, and loaded, resumed, evaluated,
translated or reported. {outcomes["refused"]:,} were refused in one line; {outcomes["done"]:,} gave the result of
undamaged files or, with recomputed digests, another; {faults or "none"} ended in a traceback, in a signal, after 20 s
or with more than 1 GB of memory. The longest took {results["max_seconds"]:.1f} s, the largest
{results["max_resident_bytes"] / 1e6:.0f} MB.
"""


def sweeps(found: dict[str, Any]) -> str:
    """Return a table of sweeps with killed processes, and the throughput of a second worker."""
    verdicts = {True: "identical run folders and table", False: "DIFFERENT results"}
    rows = [
        (engine, str(hits["worker"]), str(hits["controller"]), verdicts[found[engine]["equal"]])
        for engine in ("pool", "ray")
        for hits in (found[engine]["effective_kills"],)
    ]
    return (
        f"`{found['command']}`:\n"
        + f"sweeps of {found['trials']} trials with random SIGKILLs, compared with an uninterrupted sweep.\n\n"
        + table(("engine", "workers killed", "controllers killed", "result"), rows)
        + f"\nTwo workers complete {found['throughput_ratio']:.2f} times as many trials per hour as one "
        + f"({found['trials_per_hour_two_workers']:,.0f} against {found['trials_per_hour_one_worker']:,.0f}).\n"
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
        f"{trials} restarts\nof each cell of `recipes/stack_language_models/small.yaml`, all of which were trained to "
        "their end. The difference is that of the\nbest validation score from the full grid's.\n\n"
        + table(("rungs, epochs", "cost", "cells within 0.01 nats", "largest difference, nats"), rows)
    )


def translation_speed(found: dict[str, Any]) -> str:
    """Return a table of beam search with and without a decoder state."""
    rows = found["results"]
    base = rows[0]["sentences/s"]
    descriptions = {
        "incremental": "incremental decoding",
        "full prefix": "prefix recomputed at each step",
        "full prefix, batch size 1": "prefix recomputed, one sentence at a time",
    }
    body = [
        (row["system"], descriptions[row["method"]], f"{row['sentences/s']:.1f}", f"{row['sentences/s'] / base:.2f}")
        for row in rows
    ]
    return table(("system", "method", "sentences/s", f"relative to {rows[0]['system']}"), body)


def decoding_peers(found: dict[str, Any]) -> str:
    """Return a table of beam search compared with CTranslate2 on the same weights."""
    rows = sorted(found["results"], key=lambda row: (row["size"], row["beam"]))
    first = {(row["size"], row["beam"]): row for row in rows if row["method"] == "CTranslate2 float32"}
    body = [
        (
            row["size"],
            str(row["beam"]),
            row["method"],
            f"{row['sentences_per_second']:.1f}",
            f"{min(row['all']):.1f} to {max(row['all']):.1f}",
            f"{row['sentences_per_second'] / first[row['size'], row['beam']]['sentences_per_second']:.2f}",
            f"{row['equal_to_ctranslate2_float32']:.0%}" if row["exported"] else "",
            f"{row['mib_per_sentence']:.1f}" if "mib_per_sentence" in row else "",
        )
        for row in rows
    ]
    header = ("size", "beam", "method", "sentences/s", "range", "of CTranslate2 float32", "equal translations")
    return table((*header, "MiB per sentence"), body)


def decoding_mechanisms(found: dict[str, Any]) -> str:
    """Return a table of beam search with decoders of other mechanisms, relative to base."""
    body = [
        (
            row["decoder"],
            str(row["beam"]),
            "{} of {}".format(*row["sublayers_in_kernel"]),
            f"{row['kernel']:.2f}",
            f"{row['modules']:.2f}",
        )
        for row in found["results"]
    ]
    header = ("decoder", "beam", "sublayers in kernel calls", "speed, relative to base", "module by module")
    return f"""`OMP_NUM_THREADS=1 python benchmarks/decoding_mechanisms.py --turns {found["turns"]}`: the same sentences
and sizes (d 288), other mechanisms in the decoder, which run in the same kernel or, if it does not have them, as
modules between kernel calls. The last column is the speed if all sublayers run as modules.

{table(header, body)}
"""


def translation_quality(found: dict[str, Any]) -> str:
    """Return a table of BLEU and speed in other precisions and with a shortlist, and the gain of refilled batches."""
    body = [
        (
            f"{row['run']}, {row['epochs']} epochs",
            row["method"],
            f"{row['BLEU']:.2f}",
            f"{row['difference']:+.2f}",
            f"{row['p']:.3f}",
            f"{row['equal']:.0%}",
            f"{row['speed']:.2f}",
        )
        for row in found["results"]
    ]
    header = ("run", "method", "BLEU", "difference", "p", "equal translations", "speed, relative to float32")
    bounds = [
        f"{row['run']} {bound['saved']:.1%} (now {bound['mean_rows']:.0f} hypotheses, {bound['most_rows']} at most)"
        for row in found["results"]
        if (bound := row["refilling"]) is not None
    ]
    sentences, processor = found["results"][0]["sentences"], found["processor"]
    return (
        "`OMP_NUM_THREADS=1 python benchmarks/translation_quality.py RUN ...`: trained runs of base and hc-sa of\n"
        "`recipes/hard_coded_attention/table_2_small.yaml` (bfloat16 in training only), with `--precision` and\n"
        f"`--shortlist`, on {sentences:,} sentences of Multi30k's test2016; a beam of 4, one thread, {processor}.\n\n"
        + table(header, body)
        + "\nBatches hold sentences of similar length, and are not refilled as sentences end. If all steps were as\n"
        + f"large as the largest one, this would save of the time: {', '.join(bounds)}.\n\n"
    )


def efficiency(found: dict[str, Any]) -> str:
    """Return a table of the translation speed and the largest training batch of each system."""
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
    batch = f"largest training batch in {found['memory_gib']:g} GiB (tokens)"
    return table(("system", "sentences/s", "relative to base", batch, "relative to base"), body)


def same_in_batches(found: dict[str, Any]) -> str:
    """Return a sentence about translations in batches of other sizes."""
    others = found["compared with batches of 1"]
    changed = ", ".join(f"{each['different']} in batches of {each['batches']}" for each in others)
    return (
        f"{found['sentences']:,} sentences, a beam of {found['beam']}. Number of translations that differ\n"
        f"from translating one sentence at a time: {changed}."
    )


def language_models() -> str:
    """Return the section on training language models; empty until it has been measured."""
    if not (HERE / "results" / "language_model_steps.json").exists():
        return ""
    found = results_of("language_model_steps")
    rows = [
        (
            f"{kind}: {model}",
            f"{score['tokens_per_second']:,.0f}",
            f"{score['speed_over_Tf']:.3f} ({score['interval'][0]:.3f} to {score['interval'][1]:.3f})",
            f"{score['peak_memory'] / models['Tf']['peak_memory']:.3f}",
        )
        for kind, models in found["results"].items()
        for model, score in models.items()
    ]
    return f"""## Training language models

`{found["command"]}`, {found["threads"]} threads, on {found["processor"]}: updates of the language models
of DuSell & Chiang (2024, section 7), d_model 256, on batches of 512 tokens, interleaved; with 95 % intervals of the
speed relative to the transformer without a stack. The paper's implementation has a speed of 0.40 (Tf+Sup) and 0.03
(Tf+Nd) and 4.8 times the memory (Tf+Nd).

{table(("batches and model", "tokens/s", "speed / Tf", "memory / Tf"), rows)}
"""


def contents_of_stacks(found: dict[str, Any]) -> str:
    """Describe the time of the contents at each depth."""
    sizes, long, compared = found["sizes"], found["long"], found["compared"]
    stack = f"Q {sizes['states']}, S {sizes['symbols']}"
    return f"""`{found["command"]}`: the exact contents at {sizes["depths"]} depths of a stack with {stack},
after each of {long["tokens"]:,} tokens, take {long["seconds"]:.1f} s of processor time on one thread; the peak memory
of the process is {long["peak_memory_mib"]:,} MiB. At {compared["tokens"]} tokens, the definition takes
{compared["times_faster"]:.0f} times as long (median of rounds in turns).
"""


def preparation() -> str:
    """Return the section on preparing text; empty until it has been measured."""
    if not (HERE / "results" / "preparation.json").exists():
        return ""
    found = results_of("preparation")
    rows = [
        (f"text, {level}", f"{score['MB/s']:.1f} MB/s", f"{score['peak memory in MB']:,.0f} MB")
        for level, score in found["text"].items()
    ]
    pairs = found.get("parallel")
    if pairs:
        rows.append(("parallel text, bpe", f"{pairs['pairs/s']:,.0f} pairs/s", f"{pairs['peak memory in MB']:,.0f} MB"))
    return f"""## Preparing text

`{found["command"]}`, {found["workers"]} workers on {found["cores"]} cores: `structattn prepare` from its start to its
end on {found["megabytes"]:,.0f} MB of text of a million word types with Zipf-Mandelbrot frequencies, and the peak
memory of all its processes.

{table(("prepared", "speed", "peak memory"), rows)}
"""


def page() -> str:
    """Return the whole page."""
    cpu, kills = results_of("two-core-cpu"), results_of("reliability_kills")
    text, plain, sampling = results_of("wikitext-2"), results_of("plain_eager"), results_of("sampling")
    machine, translations = cpu["machine"], results_of("decoding")
    cost, peers = results_of("translation_efficiency"), results_of("decoding_peers")
    mechanisms = where_measured("decoding_mechanisms", decoding_mechanisms)
    quality = where_measured("translation_quality", translation_quality)
    digests = "the same digests" if kills["identical"] else "DIFFERENT digests"
    baselines = text["scores"]["test"]["baselines"]
    perplexities = [
        ("Tf+Nd", f"{text['scores']['test']['perplexity']:.1f}"),
        ("interpolated trigram", f"{baselines['trigram']['perplexity']:.1f}"),
        ("unigram", f"{baselines['unigram']['perplexity']:.1f}"),
    ]
    return f"""# Benchmarks

This page is generated by `python benchmarks/write_page.py` from the files in `benchmarks/results/`, which also hold the
commands that produced them. Tf is a transformer; +Sup adds superposition stack attention in its middle layer, +Nd
nondeterministic stack attention; LSTM+Sup and LSTM+Nd have a stack of that kind.

## Ratios

{ratios(results_of("ratios"))}
## Operators

`python benchmarks/operators.py`, all in one run. Medians, except for the nondeterministic stack's reference, which ran
once. {machine["processor"]}, {machine["threads"]} threads, {machine["instruction_set"]}, torch {machine["torch"]}.
`python benchmarks/gpu.py` measures on a GPU; no GPU results are kept.

{operators(cpu)}
The operation count is n³/6 · (Q³S + Q²S) multiply-adds forward and twice that backward. Speeds are compared with a
float64 product of two 1500 x 1500 matrices, {cpu["long_stacks"]["matrix_product_gflops"]:.0f} GFLOP/s.

### All operators

All inputs are float32. Batch sizes and dimensions:

- Stacks: batch 10, compared with causal softmax attention of shape 10 × 4 × 8 (batch × heads × head size).
  Nondeterministic: Q 2, S 3, m 5; superposition and stratified: m 32.
- Stack pointers: batch 32, vectors of size 256, compared with softmax attention of shape 32 × 8 × 32.
- Others: 2 × 4 × 64, compared with softmax attention of the same shape; receptive fields: one sequence.

References are measured at lengths where they are not too slow. Operations are those of the forward pass, with a
multiply-add counted as two; the last column is their rate relative to that of a float32 matrix product.

{every_operator(cpu)}
Increase of peak resident memory by forward and backward, each measured in a separate process:

{memory(cpu)}
Growth of the time of forward and backward with the length, one sequence with 4 heads of size 64:

{growth(cpu)}
## Training steps

The models of DuSell & Chiang (2024, section 6) on ten strings of ww^R of the same length; a whole training step.

{steps(cpu)}
{profile(results_of("profile_step"))}
{alternatives(results_of("training_alternatives"), results_of("profile_step"))}
## The demo with ten seeds

`python benchmarks/demo_seeds.py`: `structattn demo` with the seeds 1 to 10; validation cross-entropy above the lower
bound, in nats per symbol. Tf+Nd has found its stack where it is below 0.03 ([how](finding_the_stack.md)).

{seeds(results_of("demo_seeds"))}
## WikiText-2

Word-level language modeling on a continuous stream: `recipes/text.yaml` (a stack attention layer between two softmax
layers, `d_model` 128), {text["minutes"]} minutes with one thread on a machine with other load, {
        text["updates"]:,} updates of 1,024 tokens. Test
perplexity, including ends of lines:

{table(("model", "test perplexity"), perplexities)}
## Translation

`OMP_NUM_THREADS=1 python benchmarks/decoding.py --repeats {
        translations["repeats"]
    } --output benchmarks/results/decoding.json`:
{translations["sentences"]:,} sentences, a beam of {
        translations["beam"]
    }, one thread; the systems of You et al. (2020) at their sizes, with random weights and given
target lengths. Medians of {
        translations["repeats"]
    } runs after a warm-up run. The paper reports hc-sa 6 % and sh-x 30 % faster than base, in a
different configuration: trained models of the large sizes, a GPU, batches of 256 sentences and a search for the end.

{translation_speed(translations)}
`OMP_NUM_THREADS=1 python benchmarks/decoding_peers.py --turns {peers["turns"]} --memory --output
benchmarks/results/decoding_peers.json`, on {peers["processor"]} with other load: beam search compared with
CTranslate2 {peers["ctranslate2"]} on the same random weights; 64 sources of 28 tokens are translated into 28 tokens,
vocabulary 10,000. The methods take turns; sentences per second of processor time, medians.

{decoding_peers(peers)}
All layers of a step run in one kernel call, in each precision and system. MiB per sentence: how much the resident
memory of a process grows at most during the first batch, divided by its 64 sentences. In a profile of base at d 288 and
a beam of 1, the layers of the decoder take about two fifths of the time, of which a third is attention to cached rows,
and the products of the encoder and the output another third.

{mechanisms}{
        quality
    }`OMP_NUM_THREADS=1 python benchmarks/translation_efficiency.py RUN ...`: runs of `table_2_small.yaml`, trained for
two epochs, on {
        cost[
            "sentences"
        ]:,} sentences of Multi30k's test set in batches of 256, with the settings of the runs (a beam of 4;
bfloat16 in training only). Means of {
        cost["timed"]
    } runs. Batch sizes count source and target tokens, including padding.

{efficiency(cost)}
## Reliability

`python benchmarks/reliability_kills.py SETTINGS.yaml --kills 20`: a training run with dropout received {
        kills["kills"]
    } SIGKILLs
at random moments, also in the middle of epochs. It ended with {digests} of weights, optimizer state and event log as an
uninterrupted run.

{distributed_kills(results_of("reliability_distributed"))}

`python benchmarks/reliability_decoding.py RUN`: {same_in_batches(results_of("reliability_decoding"))}

{sweeps(results_of("reliability_sweeps"))}
{halving_selection(results_of("halving_selection"))}
{damaged_files(results_of("fuzz_files"))}
{language_models()}{preparation()}{explorer(results_of("explorer"))}{
        interventions(results_of("interventions"))
    }## Contents of a nondeterministic stack

{contents_of_stacks(results_of("stack_contents"))}
## Plain eager PyTorch

`python benchmarks/plain_eager.py`, one thread, ten strings of length 60, processor time: a training step of structattn
takes {plain["ours_over_plain"]:.2f} of the time of the same step in plain eager PyTorch ({
        milliseconds(plain["seconds"]["ours"])
    } compared with {milliseconds(plain["seconds"]["plain"])}).

## Sampling

`python benchmarks/sampling.py`: the slowest formal language is sampled at {
        min(sampling["strings/s"].values()):,.0f} strings/s and the slowest
transduction at {min(sampling["pairs/s"].values()):,.0f} pairs/s; a training step of the previous section consumes {
        10 / plain["seconds"]["ours"]:,.0f} strings/s.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
