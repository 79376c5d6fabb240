"""The explorer: the time of views and of interventions."""

from typing import Any

from pages.tables import results_of, table


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


def section() -> str:
    """Return the section on the explorer."""
    return explorer(results_of("explorer")) + interventions(results_of("interventions"))
