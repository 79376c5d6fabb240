"""The sections on stored results, one for each sweep, on the pages of the papers."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from findings import longer
from stored import HERE, RECIPES, Stored, stored

from structattn.sweeps.comparison import check_claims
from structattn.sweeps.trials import cells_of


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def cell_names(row: dict[str, Any]) -> list[str]:
    return [f"`{name}`" if "^" in name or "#" in name else name for name in row["cell"].values()]


def scores(results: Stored) -> str:
    """Return a table with one row per cell: validation statistics, and the selected trial's scores on the splits."""
    rows = results.content["rows"]
    beyond = [longer(results, row["cell"]) for row in rows]
    names = list(
        dict.fromkeys(f"{split}.{name}" for row in rows for split in row["splits"] for name in row["splits"][split])
    )
    names = [name for name in names if name.split(".")[1] not in ("cross_entropy", "lower_bound")]
    # Trials that remain after halving were selected by validation: the rungs have the statistics over all trials.
    halved = any(row.get("savings") for row in rows)
    head = [
        *rows[0]["cell"],
        "trials",
        "best validation",
        *(() if halved else ("mean validation", "±95 %")),
        *(name.replace(".", ", ") for name in names),
        *(["test, longer than in training, length known: mean over trials"] if all(beyond) else []),
    ]
    return table(
        head,
        (
            [
                *cell_names(row),
                str(row["validation"]["count"]),
                number(row["best"]),
                *(() if halved else (number(row["validation"][name]) for name in ("mean", "interval"))),
                *(number(row["splits"].get(name.partition(".")[0], {}).get(name.partition(".")[2])) for name in names),
                *([number(fmean(found.values()))] if all(beyond) else []),
            ]
            for row, found in zip(rows, beyond, strict=True)
        ),
    )


def halving(result: dict[str, Any]) -> str:
    """Return a table of the trials at the rungs of successive halving and of what it cost, or an empty string."""
    halved = [(row, row["savings"]) for row in result["rows"] if row.get("savings")]
    if not halved:
        return ""
    first, unit = halved[0][1]["rungs"][0]["after"], halved[0][1]["unit"]
    head = [*halved[0][0]["cell"], "trials at the rungs", f"mean validation after {first} {unit}", "±95 %", "cost"]
    rows = []
    for row, savings in halved:
        compared = [rung["validation"] for rung in savings["rungs"]]
        counts = " ".join(str(each["count"]) for each in compared)
        cost = f"{savings['trained'] / savings['without_halving']:.0%}" if savings["without_halving"] else "–"
        rows.append([*cell_names(row), counts, number(compared[0]["mean"]), number(compared[0]["interval"]), cost])
    trained, without = (sum(savings[name] for _, savings in halved) for name in ("trained", "without_halving"))
    return f"\nSuccessive halving: {trained:,} {unit} of training, of about {without:,.0f}.\n\n{table(head, rows)}"


def comparisons(result: dict[str, Any]) -> str:
    """Return a table of the published numbers beside ours with the differences below it, or an empty string."""
    found = [each for each in result["comparisons"] if each["ours"] is not None]
    if not found:
        return ""
    notes = list(dict.fromkeys("; ".join(each["differences"]) for each in found if each["differences"]))
    rows = (
        [
            each["source"],
            *cell_names(each),
            f"{each['published']:g}" + (f" ± {each['deviation']:g}" if each["deviation"] is not None else ""),
            number(each["ours"]),
            number(each["interval"]),
            str(each["trials"]),
            verdict(each, notes),
        ]
        for each in found
    )
    head = ["source", *found[0]["cell"], "published", "ours", "±95 %", "trials", "published vs. our interval"]
    below = (f"- {mark(place)}: {note}\n" for place, note in enumerate(notes, start=1))
    return "\n" + table(head, rows) + ("\n" if notes else "") + "".join(below)


def verdict(comparison: dict[str, Any], notes: Sequence[str]) -> str:
    if comparison["differences"]:
        return mark(notes.index("; ".join(comparison["differences"])) + 1)
    return {True: "inside", False: "outside", None: "–"}[comparison["inside"]]


def mark(place: int) -> str:
    return f"different configuration ({place})"


def claims(results: Stored) -> str:
    """Return a table of the recipe's claims, judged over seeds, or an empty string."""
    found = check_claims(results.recipe.claims, cells_of(results.recipe), results.rows)
    rows = [
        [
            each.description,
            *cell_names({"cell": each.cell}),
            number(each.ours),
            number(each.bound),
            *each.judgement.texts,
        ]
        for each in found
        if each.judgement is not None
    ]
    if not rows:
        return ""
    return "\n" + table(["claim", *found[0].cell, "ours", "compared with", "difference (95 %)", "it"], rows)


def signatures(result: dict[str, Any]) -> str:
    """Return a list of the sacrebleu signatures of translation scores."""
    found = result.get("signatures", [])
    return "".join(f"- `{signature}`\n" for signature in found) + ("\n" if found else "")


def figures(results: Stored) -> str:
    """Return the recipe's figures with their captions."""
    path = f"../../results/{results.name.rpartition('/')[0]}"
    return "".join(
        f"\n![{figure['caption']}]({path}/{figure['name']}.png)\n\n{figure['caption']}\n"
        for figure in results.content.get("figures", [])
    )


def link(name: str) -> str:
    return f"[`{name.rpartition('/')[2]}`](../../results/{name})"


def command(results: Stored) -> str:
    """Return the command of the results, or, if it would train with other settings now, what has changed since."""
    if not results.changes:
        return f"`{results.content['command']}`"
    recipe = f"[the recipe](../../{RECIPES.relative_to(HERE.parent)}/{results.name}.yaml)"
    changed = "".join(f"- `{change}`\n" for change in results.changes)
    return f"Earlier settings, which {recipe} does not give any more. Since then:\n\n{changed}\nOf these results"


def section(name: str) -> str:
    """Return the section on one sweep, with the notes from the Markdown file beside its JSON file."""
    results = stored(name)
    content = results.content
    notes = HERE / f"{name}.md"
    text = "\n" + notes.read_text(encoding="utf-8") if notes.exists() else ""
    trials = f"; by trial: {link(f'{name}.trials.jsonl')}" if results.trials else ""
    return f"""## {title(name)}

{command(results)}: {counted(results)}; version {content["version"]}.
Settings, seeds and all numbers: {link(f"{name}.json")}{trials}.
{text}{improving(results)}
{signatures(content)}{scores(results)}{halving(content)}{comparisons(content)}{claims(results)}{figures(results)}"""


def improving(results: Stored) -> str:
    """Say how many trials had their best update at the end, or nothing if none had or it is not known."""
    ends = [trial["end"] for trial in results.trials if trial["end"]]
    last = sum(end["best_update"] == end["update"] for end in ends)
    if not last:
        return ""
    return (
        f"\nThe best update of {last} of {len(ends)} trials is their last: more training would change their numbers.\n"
    )


def counted(results: Stored) -> str:
    """Say how many trials have ended, and how many of each cell halving has left."""
    content = results.content
    ended = f"{content['trials_ended']} of {content['trials']} trials have ended"
    halved = [row.savings for row in results.rows if row.savings]
    if stopped := sum(trial.stopped for savings in halved for trial in savings.trials):
        left = sorted({len(savings.trials) - sum(trial.stopped for trial in savings.trials) for savings in halved})
        left_of_each = " or ".join(map(str, left))
        ended += f", {stopped} were stopped by successive halving: {left_of_each} of a cell have reached the end"
    commits = sorted({trial["commit"] for trial in results.trials if trial["commit"]})
    return ended + (f"; commit {', '.join(commits)}" if commits else "")


def title(name: str) -> str:
    folder, _, file = name.partition("/")
    return f"{folder.replace('_', ' ').capitalize()}, {file.replace('_', ' ')}"
