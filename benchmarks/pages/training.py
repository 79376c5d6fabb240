"""Training: its steps, their parts, other ways to take them, and how data are made for them."""

from typing import Any

from pages.tables import milliseconds, results_of, table


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


# By `perf record`, which names functions if the kernels are built with symbols.
KERNEL = """What Tf+Nd takes longer than Tf is nearly all in its stack, whose kernel takes 1.5 ms in an undisturbed
step; in this profile, which is of processor time and of a busier machine, all is slower. By `perf` on 2026-11-24,
products of matrices take 37 % of the kernel (78 million floating-point operations in 0.5 ms); the rest is work of
order n and n² in small pieces: the last pairs of times within blocks 6 %, running sums 5 %, scales 5 %, corrections
of provisional weights 4 %, transposition 3 %, logarithms and exponentials 3 %, and many below. For Tf+Nd to take 1.25
times as long as Tf in the table of steps, the kernel would have to be some 0.3 to 0.5 ms faster, nearly as long as
all products take.
"""


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
        "string of two symbols, where there is next to no arithmetic.\n\n" + table(header, rows) + f"\n{KERNEL}"
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
processor time of other ways to take these steps, relative to the training loop's, which runs kernels; more than 1 is
slower. Together: {restarts} restarts of the modules by `torch.vmap` over their parameters, under favourable conditions
(the same dropout masks and learning rate, batches of one length). Compiled: the modules by `torch.compile`, which takes
up to {slowest:.0f} s at first and drops other elements.

{table(("model", "together", "compiled"), rows)}
Sweeps therefore train each restart alone. Kernels for a batch of parameters would save nothing but calls: by the
profile of Tf, a factor of {gains[0]:.2f} at most if all restarts had batches of the same length, and {gains[1]:.2f}
with lengths from 40 to 80 in an order of their own, where batches are padded to the longest of {restarts}.
"""


def seeds(results: dict[str, Any]) -> str:
    """Return a table of the differences of both models of the demo, a row for each seed."""
    models = list(dict.fromkeys(row["model"] for row in results["rows"]))
    found = {(row["seed"], row["model"]): row for row in results["rows"]}
    numbers = list(dict.fromkeys(seed for seed, _ in found))
    return table(
        ("seed", *models, *(f"{model}, longer" for model in models)),
        [
            (str(seed), *(f"{found[seed, model][name]:.4f}" for name in ("difference", "longer") for model in models))
            for seed in numbers
        ],
    )


def language_models() -> str:
    """Return the section on training language models."""
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


def preparation() -> str:
    """Return the section on preparing text."""
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


def learning_rates(found: dict[str, Any]) -> str:
    """Return the section on the learning rate of a bare layer, a row for each rate."""
    layers = list(dict.fromkeys(row["layer"] for row in found["rows"]))
    values = {(row["rate"], row["layer"]): row["differences"] for row in found["rows"]}
    rows = [
        (f"{rate:g}", *(f"{min(values[rate, layer]):.3f} to {max(values[rate, layer]):.3f}" for layer in layers))
        for rate in dict.fromkeys(rate for rate, _ in values)
    ]
    return f"""## The learning rate of a bare layer

`{found["command"]}`: one layer between an embedding and an output, `output(x + layer(x))`,
on batches of ten strings of Dyck-2 of lengths 10 to 30; {found["updates"]:,} updates of Adam at a constant rate.
Validation cross-entropy above the lower bound, in nats per token: the best and the worst of three seeds.

{table(("learning rate", *layers), rows)}
"""


def wikitext_2(found: dict[str, Any]) -> str:
    """Return the section on a language model of WikiText-2 and its baselines."""
    test = found["scores"]["test"]
    perplexities = [
        ("Tf+Nd", f"{test['perplexity']:.1f}"),
        ("interpolated trigram", f"{test['baselines']['trigram']['perplexity']:.1f}"),
        ("unigram", f"{test['baselines']['unigram']['perplexity']:.1f}"),
    ]
    return f"""## WikiText-2

Word-level language modeling on a continuous stream: the recipe `text` (a stack attention layer between two softmax
layers, `d_model` 128), {found["minutes"]} minutes with one thread on a machine with other load, {
        found["updates"]:,} updates of 1,024 tokens. Test
perplexity, including ends of lines:

{table(("model", "test perplexity"), perplexities)}"""


def section() -> str:
    """Return the sections on training."""
    plain, sampling = results_of("plain_eager"), results_of("sampling")
    return f"""## Training steps

The models of DuSell & Chiang (2024, section 6) on ten strings of ww^R of the same length; a whole training step.

{steps(results_of("two-core-cpu"))}
{profile(results_of("profile_step"))}
{alternatives(results_of("training_alternatives"), results_of("profile_step"))}
{language_models()}## Plain eager PyTorch

`python benchmarks/plain_eager.py`, one thread, ten strings of length 60, processor time: a training step of structattn
takes {plain["ours_over_plain"]:.2f} of the time of the same step in plain eager PyTorch ({
        milliseconds(plain["seconds"]["ours"])
    } compared with {milliseconds(plain["seconds"]["plain"])}).

## Sampling

`python benchmarks/sampling.py`: the slowest formal language is sampled at {
        min(sampling["strings/s"].values()):,.0f} strings/s and the slowest
transduction at {min(sampling["pairs/s"].values()):,.0f} pairs/s; a training step of the previous section consumes {
        10 / plain["seconds"]["ours"]:,.0f} strings/s.

{preparation()}## The demo with ten seeds

`python benchmarks/demo_seeds.py`: `structattn demo` with the seeds 1 to 10; cross-entropy above the lower bound, in
nats per symbol, on validation strings and on test strings longer than those of training, given their length. Tf+Nd has
found its stack where the former is below 0.03 ([how](finding_the_stack.md)).

{seeds(results_of("demo_seeds"))}
{learning_rates(results_of("learning_rates"))}{wikitext_2(results_of("wikitext-2"))}"""
