"""The page of an extraction."""

from collections.abc import Sequence

from structattn.extraction.agreement import Agreement
from structattn.extraction.drawing import automaton_svg
from structattn.extraction.pipeline import Extraction
from structattn.loading.trained_run import TrainedRun
from structattn.metrics.statistics import Proportion
from structattn.report.page import MISSING, Markup, joined, page_text, table, tag, visible
from structattn.support.environment import name_of

VERDICTS = {
    "exact": "Exact",
    "other language": "An automaton of another language",
    "no automaton agrees": "No automaton agrees",
}
ALGORITHMS = {
    "transitions": "transitions of the best run of each prefix, which is what the model read there",
    "visibly pushdown": "learned from the model's answers, with the pushes and pops of its stack as calls and returns",
}

ORIGINS = {
    "gap": "in the middle of the widest gap",
    "given": "as given",
    "fallback": "by convention",
    "fitted": "where model and automaton agree most",
}


def share(proportion: Proportion | None) -> str:
    """Format a share with its interval."""
    if proportion is None:
        return MISSING
    low, high = proportion.lower, proportion.upper
    return f"{proportion.value:.4f} ({low:.4f} to {high:.4f}), {proportion.trials:,} prefixes"


def agreement_rows(extraction: Extraction) -> list[tuple[str, str, str]]:
    """Return what is compared, at trained lengths, and after short prefixes."""

    def row(name: str, field: str) -> tuple[str, str, str]:
        return name, _field(extraction.trained, field), _field(extraction.short, field)

    return [
        row("automaton and model", "extracted_model"),
        row("automaton and language", "extracted_truth"),
        row("model and language", "model_truth"),
    ]


def _field(agreement: Agreement | None, field: str) -> str:
    return MISSING if agreement is None else share(getattr(agreement, field))


def causal_rows(extraction: Extraction) -> list[tuple[str, str]]:
    """Return the cross-entropies of the causal check, and that with the stack disabled."""
    causal = extraction.causal
    model, extracted = f"{causal.model:.4f}", f"{causal.extracted:.4f} ({causal.difference:+.4f})"
    disabled = ("disabled", f"{causal.disabled:.4f} ({causal.disabled_difference:+.4f})")
    if extraction.algorithm == "visibly pushdown":
        return [("the model", model), ("mean weights of each step of the automaton", extracted), disabled]
    return [
        ("the model", model),
        ("mean weights of each letter", f"{causal.letters:.4f} ({causal.letters_difference:+.4f})"),
        ("the extracted transitions alone", extracted),
        disabled,
    ]


def extraction_page(run: TrainedRun, extraction: Extraction) -> bytes:
    """Return the page: verdict, drawing, grammar, agreement, causal check, and what was read."""
    name = name_of(run.run_dir)
    parts = [
        tag("h1", f"What the stack of {name} has learned"),
        tag("p", tag("strong", _verdict(extraction)), f": {'; '.join(extraction.verdict.reasons)}."),
    ]
    if extraction.minimal is not None:
        automaton, text = extraction.minimal.automaton, extraction.minimal.text
        kind = "Deterministic" if automaton.is_deterministic else f"Nondeterministic: {automaton.num_choices} choices"
        length = extraction.minimal.max_length
        merged = f"Controls and items are merged where prefixes up to length {length} stay the same."
        if not length:
            merged = "Nothing is merged, as merges lower the agreement with the model."
        parts += [
            tag("h2", "Automaton"),
            tag(
                "figure", tag("div", automaton_svg(automaton), class_="scroll"), tag("figcaption", f"{kind}. {merged}")
            ),
            tag("h2", "Grammar"),
            tag("p", extraction.minimal.without_text) if text is None else tag("pre", text),
        ]
    heads = ("", "validation strings, of trained lengths", "all short prefixes of either language")
    parts += [
        tag("h2", "Agreement"),
        _table(heads, agreement_rows(extraction)),
        tag("p", _agreement_note(extraction), class_="note"),
        tag("h2", "Causal check"),
        _table(("stack", "nats per token"), causal_rows(extraction)),
        tag("p", "Cross-entropy on validation strings, with the stack's weights replaced.", class_="note"),
        tag("h2", "What was read"),
        _table(("", ""), _facts(run, extraction)),
    ]
    return page_text(f"{name}: extracted automaton", joined(*parts))


def _verdict(extraction: Extraction) -> str:
    kind = extraction.verdict.kind
    unknown = kind == "other language" and extraction.comparison is None
    return "An automaton agrees with the model" if unknown else VERDICTS[kind]


def _agreement_note(extraction: Extraction) -> str:
    mass = extraction.forbidden_mass
    given = "" if mass is None else f" The model gives {mass:.2e} of its probability to what the automaton forbids."
    intervals = "95 % intervals, too narrow as prefixes of one string are not independent"
    return f"Share of prefixes after which the same symbols can follow, with {intervals}.{given}"


def _facts(run: TrainedRun, extraction: Extraction) -> list[tuple[str, str]]:
    threshold, symbols = extraction.threshold, run.prepared.vocabulary.symbols
    separates = "separates" if threshold.has_gap else "does not separate"
    letters = ", ".join(f"{visible(symbols[symbol])} {len(of)}" for symbol, of in extraction.letters.of_symbol.items())
    return [
        ("algorithm", ALGORITHMS[extraction.algorithm]),
        ("strings", f"{extraction.num_strings[0]} sampled, {extraction.num_strings[1]} short"),
        ("threshold", f"{threshold.value:.2e}, {ORIGINS[threshold.origin]}"),
        ("widest gap", f"of a factor of {threshold.factor:.1f}, which {separates}"),
        ("letters of each symbol", letters),
        ("classes of vectors", str(extraction.letters.num_vectors)),
        ("ambiguous letters", f"{extraction.ambiguous:.2%} of steps"),
        ("observed transitions", f"{len(extraction.automaton.transitions)}, before merging"),
    ]


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Markup:
    head = [tag("th", each) for each in heads]
    return table(head, [[tag("th", row[0]), *(tag("td", cell) for cell in row[1:])] for row in rows])
