"""The card of one run: its settings, digests, hardware and command."""

from structattn.reporting.labels import flattened
from structattn.reporting.markup import Markup, joined, tag
from structattn.reporting.palette import Look
from structattn.reporting.runs import Run
from structattn.reporting.tables import swatch


def _facts(run: Run) -> list[tuple[str, str]]:
    facts = [("folder", str(run.folder))]
    digests = {str(score["prepared_digest"]) for score in run.scores.values() if score.get("prepared_digest")}
    facts += [("prepared data", digest) for digest in sorted(digests)]
    facts += flattened({key: value for key, value in run.card.items() if key != "settings"})
    for end in run.of("end")[-1:]:
        facts.append(("ended", str(end.get("reason", ""))))
    return facts


def run_card(run: Run, look: Look) -> Markup:
    """Everything that is known of a run, folded away until it is asked for."""
    facts = [joined(tag("dt", name), tag("dd", value)) for name, value in _facts(run)]
    return tag(
        "details",
        tag("summary", swatch(look), run.name),
        tag("dl", *facts),
        tag("h4", "settings.yaml: ", tag("code", "structattn train settings.yaml --output RUN"), " repeats the run"),
        tag("pre", run.settings_text),
        class_="card",
    )
