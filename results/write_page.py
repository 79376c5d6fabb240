"""Writes docs/results.md from results/*/*.json, which `structattn report SWEEP --recipe FILE -o JSON` made.

python results/write_page.py
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def cell_of(row: dict[str, Any]) -> list[str]:
    return [f"`{name}`" if "^" in name or "#" in name else name for name in row["cell"].values()]


def scores(result: dict[str, Any]) -> str:
    """One row for each cell: validation, and what the selected trial reaches on the splits."""
    rows = result["rows"]
    names = list(
        dict.fromkeys(f"{split}.{name}" for row in rows for split in row["splits"] for name in row["splits"][split])
    )
    names = [name for name in names if name.split(".")[1] not in ("cross_entropy", "lower_bound")]
    head = [
        *rows[0]["cell"],
        "trials",
        "validation, best",
        "mean",
        "±95 %",
        *(name.replace(".", ", ") for name in names),
    ]
    return table(
        head,
        (
            [
                *cell_of(row),
                str(row["validation"]["count"]),
                number(row["best"]),
                number(row["validation"]["mean"]),
                number(row["validation"]["interval"]),
                *(number(row["splits"].get(name.split(".")[0], {}).get(name.split(".")[1])) for name in names),
            ]
            for row in rows
        ),
    )


def comparisons(result: dict[str, Any]) -> str:
    """Published numbers of which we have ours."""
    found = [each for each in result["comparisons"] if each["ours"] is not None]
    if not found:
        return ""
    verdict = {True: "inside", False: "outside", None: "–"}
    rows = (
        [
            each["source"],
            *cell_of(each),
            f"{each['published']:g}" + (f" ± {each['deviation']:g}" if each["deviation"] is not None else ""),
            number(each["ours"]),
            number(each["interval"]),
            str(each["trials"]),
            verdict[each["inside"]],
        ]
        for each in found
    )
    return "\n" + table(["source", *found[0]["cell"], "published", "ours", "±95 %", "trials", ""], rows)


def claims(result: dict[str, Any]) -> str:
    """What was expected, and what came."""
    found = [each for each in result["claims"] if each["holds"] is not None]
    if not found:
        return ""
    rows = (
        [
            each["says"],
            *cell_of(each),
            number(each["ours"]),
            number(each["bound"]),
            "holds" if each["holds"] else "**fails**",
        ]
        for each in found
    )
    return "\n" + table(["claim", *found[0]["cell"], "ours", "against", ""], rows)


def signatures(result: dict[str, Any]) -> str:
    """How translations were scored."""
    found = result.get("signatures", [])
    return "".join(f"- `{signature}`\n" for signature in found) + ("\n" if found else "")


def figures(result: dict[str, Any], folder: Path) -> str:
    """The recipe's pictures."""
    place = folder.relative_to(HERE)
    found = result.get("figures", [])
    return "".join(f"\n![{each['says']}](../results/{place}/{each['name']}.png)\n\n{each['says']}\n" for each in found)


def section(path: Path) -> str:
    """One result."""
    result = json.loads(path.read_text(encoding="utf-8"))
    note = path.with_suffix(".md")
    words = "\n" + note.read_text(encoding="utf-8") if note.exists() else ""
    ended = f"{result['trials_ended']} of {result['trials']} trials, version {result['version']}"
    return f"""## {path.parent.name.replace("_", " ").capitalize()}, {path.stem.replace("_", " ")}

`structattn sweep {result["recipe"]}`: {ended}.
Settings, seeds and all numbers: [`results/{path.relative_to(HERE)}`](../results/{path.relative_to(HERE)}).
{words}
{signatures(result)}{scores(result)}{comparisons(result)}{claims(result)}{figures(result, path.parent)}"""


def page() -> str:
    """The whole page."""
    head = """# Results

Written by `python results/write_page.py` from `results/`. Validation is the difference from the lower bound where
that is known, the cross-entropy elsewhere, in nats per symbol. Scores are those of the trial that validation selects:
cross-entropies and perplexities per symbol, accuracies as fractions. Beside published numbers ours are in the paper's
unit, and the mean over trials where the paper's are; ±95 % is half the interval of our mean (of translations, of the
score), the published ± a standard deviation; a published number is inside or outside our interval. Tf is a
transformer, +Sup has superposition stack attention in its middle layer, +Nd nondeterministic stack attention, +stack
stack pointers in every layer; hc-sa has hard-coded Gaussian self-attention, hc-all cross-attention as well, sh-x
hc-sa and one head of learned cross-attention in all.

"""
    return head + "\n".join(section(path) for path in sorted(HERE.glob("*/*.json")))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
