"""Write docs/results.md from results/*/*.json: ``python results/write_page.py``.

The JSON files are written by ``structattn report SWEEP --recipe FILE -o JSON``, the lines of the trials beside them by
``structattn sweep RECIPE --trial-results FILE``.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def cell_names(row: dict[str, Any]) -> list[str]:
    return [f"`{name}`" if "^" in name or "#" in name else name for name in row["cell"].values()]


def scores(result: dict[str, Any]) -> str:
    """Return a table with one row per cell: validation statistics, and the selected trial's scores on the splits."""
    rows = result["rows"]
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
            ]
            for row in rows
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


def claims(result: dict[str, Any]) -> str:
    """Return a table of the recipe's claims and whether they hold, or an empty string."""
    found = [each for each in result["claims"] if each["holds"] is not None]
    if not found:
        return ""
    rows = (
        [
            each["description"],
            *cell_names(each),
            number(each["ours"]) + interval(each.get("interval")),
            number(each["bound"]),
            "holds" if each["holds"] else "**fails**",
        ]
        for each in found
    )
    return "\n" + table(["claim", *found[0]["cell"], "ours", "compared with", "result"], rows)


def interval(limits: Sequence[float] | None) -> str:
    """Return the interval of a share, or an empty string."""
    return "" if limits is None else f" ({number(limits[0])} to {number(limits[1])})"


def signatures(result: dict[str, Any]) -> str:
    """Return a list of the sacrebleu signatures of translation scores."""
    found = result.get("signatures", [])
    return "".join(f"- `{signature}`\n" for signature in found) + ("\n" if found else "")


def figures(result: dict[str, Any], folder: Path) -> str:
    """Return the recipe's figures with their captions."""
    path = f"../results/{folder.relative_to(HERE)}"
    return "".join(
        f"\n![{figure['caption']}]({path}/{figure['name']}.png)\n\n{figure['caption']}\n"
        for figure in result.get("figures", [])
    )


def link(path: Path) -> str:
    return f"[`{path.name}`](../results/{path.relative_to(HERE)})"


def section(path: Path) -> str:
    """Return the section on one sweep, with the notes from the Markdown file beside its JSON file."""
    result = json.loads(path.read_text(encoding="utf-8"))
    notes = path.with_suffix(".md")
    text = "\n" + notes.read_text(encoding="utf-8") if notes.exists() else ""
    halved = [row["savings"] for row in result["rows"] if row.get("savings")]
    stopped = sum(trial["stopped"] for savings in halved for trial in savings["trials"])
    ended = f"{result['trials_ended']} of {result['trials']} trials have ended"
    ended += f", {stopped} were stopped by successive halving" if stopped else ""
    trials = path.with_suffix(".trials.jsonl")
    more = f"; by trial: {link(trials)}" if trials.exists() else ""
    return f"""## {title(path)}

`{result["command"]}`: {ended}; version {result["version"]}.
Settings, seeds and all numbers: {link(path)}{more}.
{text}
{signatures(result)}{scores(result)}{halving(result)}{comparisons(result)}{claims(result)}\
{figures(result, path.parent)}"""


STATES = {
    "reproduced": "all published findings hold, on the whole table",
    "better": "ours is better than published",
    "partly": "some of the findings hold, or all in a part of the table; others fail, or could not be tested",
    "not reproduced": "the main finding does not hold at our sizes, which may be the reason",
    "not complete": "too little was trained to tell",
    "not run": "there is a recipe",
}


def overview() -> str:
    """Return the names of the published tables by paper and state, what the states mean, and a table with details."""
    papers = yaml.safe_load((HERE / "overview.yaml").read_text(encoding="utf-8"))
    entries = [(paper["paper"], entry) for paper in papers for entry in paper["tables"]]
    counts = Counter(entry["state"] for _, entry in entries)
    states = [state for state in STATES if counts[state] or state == "reproduced"]
    by_state = [[paper["paper"], *("; ".join(names(paper["tables"], state)) for state in states)] for paper in papers]
    defined = "".join(f"- *{state}*: {STATES[state]}\n" for state in states)
    rows = table(
        ["paper", "table or figure", "result", "trials of a cell", "in short"],
        (overview_row(paper, entry) for paper, entry in entries),
    )
    return f"{table(['paper', *(f'{state} ({counts[state]})' for state in states)], by_state)}\n{defined}\n{rows}"


def names(entries: Iterable[dict[str, Any]], state: str) -> list[str]:
    return [entry["name"] for entry in entries if entry["state"] == state]


def overview_row(paper: str, entry: dict[str, Any]) -> list[str]:
    """Return a row of the overview."""
    found = [json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")) for name in entry.get("results", [])]
    judged = [claim["holds"] for each in found for claim in each["claims"] if claim["holds"] is not None]
    if entry["state"] == "reproduced" and not (judged and all(judged)):
        raise ValueError(f"overview.yaml: {entry['name']}: reproduced, but there is no claim, or not all hold")
    paths = [HERE / name for name in entry.get("results", [])]
    links = [f"[{path.stem.replace('_', ' ')}](#{anchor(path)})" for path in paths]
    links += [f"[{Path(recipe).name}](../src/structattn/recipes/{recipe}.yaml)" for recipe in entry.get("recipes", [])]
    links += [f"[{name}]({target})" for name, target in entry.get("links", {}).items()]
    short = [entry.get("summary"), f"Left: {entry['left']}." if "left" in entry else "", ", ".join(links)]
    state = entry["state"] if entry["state"].startswith("not") else f"**{entry['state']}**"
    name = ", ".join(entry[key] for key in ("name", "about") if key in entry)
    return [paper, name, state, trials_of_cells(found[:1]), " ".join(filter(None, short))]


def trials_of_cells(results: Sequence[dict[str, Any]]) -> str:
    """Return the least and the greatest number of trials behind a row, those included that halving stopped."""
    counts = [
        len(row["savings"]["trials"]) if row.get("savings") else row["validation"]["count"]
        for each in results
        for row in each["rows"]
    ]
    return "–" if not counts else " to ".join(str(count) for count in sorted({min(counts), max(counts)}))


def title(path: Path) -> str:
    return f"{path.parent.name.replace('_', ' ').capitalize()}, {path.stem.replace('_', ' ')}"


def anchor(path: Path) -> str:
    return title(path).lower().replace(",", "").replace(" ", "-")


def page() -> str:
    """Return the whole page."""
    head = f"""# Results

Table by table, what was reproduced. All runs are small ones, of models and corpora that two cores can train.
Differences from the published setting, which may be the reason for a different result, stand below a comparison, in
the text of its section or at the head of its recipe.

{overview()}
This page is generated by `python results/write_page.py` from the files in `results/`. Figures in the text that
no table has are from event logs and outputs of the runs, which are not kept.

- **Validation** is the difference from the lower bound of the cross-entropy where that bound is known, and the
  cross-entropy elsewhere, in nats per symbol.
- **Scores** (`test, ...`) are those of the trial with the best validation: cross-entropies and perplexities per
  symbol, accuracies as fractions.
- **±95 %** is half the width of the 95 % confidence interval of our mean over trials; for BLEU, chrF2 and TER,
  of the score.
- **Cost**, with successive halving, is the share of the training that the trials would have had without it, if each
  had ended as did those of its cell that no rung has stopped.
- **Comparisons with published numbers** use the paper's unit, and the mean over trials where the paper reports a
  mean. The published ± is a standard deviation. *Inside* means that the published number lies within our interval.
  A pair of different configurations is marked, with the differences below the table.
- **Models**: Tf is a transformer; +Sup adds superposition stack attention in the middle layer, +Nd nondeterministic
  stack attention in the middle layer, and +stack stack pointers in every layer (the empty stack is `<bos>`, unless a
  section says otherwise). hc-sa has hard-coded Gaussian
  self-attention, hc-all hard-coded cross-attention as well, and sh-x is hc-sa with one head of learned
  cross-attention in the whole decoder.

"""
    return head + "\n".join(section(path) for path in sorted(HERE.glob("*/*.json")))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
