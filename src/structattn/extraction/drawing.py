"""Draw an automaton: controls on a circle, numbered edges, and a list of what each edge reads and does.

Points are complex numbers, x + iy, with y downwards.
"""

import cmath
import math
from collections.abc import Iterator, Sequence

from structattn.extraction.automaton import BOTTOM, PushdownAutomaton, Transition
from structattn.report.page import Markup, tag, visible

_STYLE = """
svg.automaton { --paper: #ffffff; --ink: #1b2028; --muted: #5d6675; --line: #8a93a1; background: var(--paper);
  font: 14px system-ui, "DejaVu Sans", sans-serif; }
@media screen and (prefers-color-scheme: dark) {
  svg.automaton { --paper: #14171c; --ink: #e7eaef; --muted: #9aa4b2; --line: #77808d; } }
svg.automaton text { fill: var(--ink); dominant-baseline: central; }
svg.automaton .middle { text-anchor: middle; }
svg.automaton .muted { fill: var(--muted); }
svg.automaton .edge { fill: none; stroke: var(--line); stroke-width: 1.4; marker-end: url(#arrow); }
svg.automaton .arrow { fill: var(--line); }
svg.automaton .control { fill: var(--paper); stroke: var(--ink); stroke-width: 1.6; }
svg.automaton .number { fill: var(--paper); stroke: var(--line); }
"""
NODE, BADGE, LINE_HEIGHT, LEGEND_WIDTH, LETTER = 22.0, 10.0, 20.0, 330.0, 8.5  # LETTER: more than most have
_ALONG = (0.5, 0.38, 0.62, 0.28, 0.72)  # places of a number along its edge, the first that is free


def item_name(item: int) -> str:
    """Return the name of a stack item."""
    return "⊥" if item == BOTTOM else f"X{item}"


def edges_of(automaton: PushdownAutomaton) -> dict[tuple[int, int], list[str]]:
    """Return, for each pair of controls, what its transitions read and do; those that differ in the top are one line.

    A line is ``symbol, tops: action``.
    """
    groups: dict[tuple[int, int], dict[tuple[str, str, int | None], list[int]]] = {}
    for each in sorted(automaton.transitions, key=_order):
        key: tuple[str, str, int | None] = each.symbol, each.action, each.item
        if each.action == "replace" and each.item == each.top:
            key = each.symbol, "keep", None
        groups.setdefault((each.source, each.target), {}).setdefault(key, []).append(each.top)
    return {pair: [_line(*key, tops) for key, tops in lines.items()] for pair, lines in groups.items()}


def _order(each: Transition) -> tuple[int, int, str, str, int, int]:
    return each.source, each.target, each.symbol, each.action, -1 if each.item is None else each.item, each.top


def _line(symbol: str, action: str, item: int | None, tops: Sequence[int]) -> str:
    done = {"push": "push", "replace": "replace by", "pop": "pop", "keep": "keep"}[action]
    tops_ = " ".join(item_name(top) for top in tops)
    return f"{visible(symbol)}, {tops_}: {done}" + ("" if item is None else f" {item_name(item)}")


def automaton_svg(automaton: PushdownAutomaton) -> Markup:
    """Return the drawing as SVG; it adapts to dark and light pages."""
    edges = edges_of(automaton)
    size = 300.0 + 24.0 * max(0, len(automaton.controls) - 4)
    places = _places(automaton.controls, size)
    lines = list(_legend(automaton, edges))
    height = max(size, LINE_HEIGHT * (len(lines) + 1))
    width = size + max(LEGEND_WIDTH, 40 + LETTER * max(len(line) for _, line in lines))
    shapes = [tag("style", Markup(_STYLE)), _arrow(), *_edges(edges, places, size)]
    for control, place in places.items():
        shapes.append(_circle(place, NODE, "control"))
        if any(final.control == control for final in automaton.finals):
            shapes.append(_circle(place, NODE - 4, "control"))
        shapes.append(_text(place, f"q{control}", "middle"))
    for row, (number, line) in enumerate(lines):
        y = LINE_HEIGHT * (row + 1)
        if number:
            shapes += [_circle(complex(size + 14, y), BADGE, "number"), _text(complex(size + 14, y), number, "middle")]
        shapes.append(_text(complex(size + 32, y), line, "" if number or line.startswith(" ") else "muted"))
    return tag(
        "svg",
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        class_="automaton",
        role="img",
        aria_label=f"Pushdown automaton with {len(places)} controls and {len(automaton.transitions)} transitions",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
    )


def _places(controls: Sequence[int], size: float) -> dict[int, complex]:
    """Return the centres: on a circle, the first at the left; a single one in the middle."""
    centre, radius = complex(size, size) / 2, size / 2 - NODE - 40 if len(controls) > 1 else 0.0
    turn = 2 * math.pi / len(controls)
    return {control: centre + cmath.rect(radius, math.pi + turn * index) for index, control in enumerate(controls)}


def _legend(automaton: PushdownAutomaton, edges: dict[tuple[int, int], list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the list: a number or nothing, and a text."""
    for start in sorted(automaton.starts):
        yield "", f"starts in q{start.control} with {' '.join(map(item_name, start.stack))}"
    for final in sorted(automaton.finals):
        yield "", f"can end in q{final.control} with {item_name(final.top)} on top"
    for number, lines in enumerate(edges.values(), start=1):
        yield str(number), lines[0]
        yield from (("", f" {line}") for line in lines[1:])


def _edges(edges: dict[tuple[int, int], list[str]], places: dict[int, complex], size: float) -> Iterator[Markup]:
    taken: list[complex] = []
    numbers = []
    for number, (source, target) in enumerate(edges, start=1):
        path, points = _curve(places[source], places[target], complex(size, size) / 2)
        free = [point for point in points if all(abs(point - other) > 2.2 * BADGE for other in taken)]
        place = (free or points)[0]
        taken.append(place)
        yield Markup(f'<path class="edge" d="{path}"/>')
        numbers += [_circle(place, BADGE, "number"), _text(place, str(number), "middle")]
    yield from numbers


def _curve(source: complex, target: complex, centre: complex) -> tuple[str, list[complex]]:
    """Return the path of an edge, bent to its left, and points on it for its number."""
    if source == target:
        outwards = source - centre
        unit = outwards / abs(outwards) if abs(outwards) >= 1 else -1j
        corners = [source + unit * cmath.rect(58, turn) for turn in (-0.6, 0.6)]
        start, end = _between(source, corners[0], NODE / 58), _between(source, corners[1], (NODE + 5) / 58)
        return f"M{_xy(start)} C{_xy(corners[0])} {_xy(corners[1])} {_xy(end)}", [source + 48 * unit]
    length, bend = abs(target - source), 0.18
    control = _between(source, target, 0.5) + bend * 1j * (target - source)
    start = _between(source, control, NODE / length * 1.9)
    end = _between(target, control, (NODE + 6) / length * 1.9)
    points = [_between(_between(start, control, t), _between(control, end, t), t) for t in _ALONG]
    return f"M{_xy(start)} Q{_xy(control)} {_xy(end)}", points


def _between(one: complex, other: complex, share: float) -> complex:
    return one + share * (other - one)


def _xy(place: complex) -> str:
    return f"{place.real:.1f},{place.imag:.1f}"


def _arrow() -> Markup:
    return Markup(
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="6" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto"><path class="arrow" d="M0,0 L10,5 L0,10 z"/></marker></defs>'
    )


def _circle(place: complex, radius: float, class_: str) -> Markup:
    return Markup(f'<circle class="{class_}" cx="{place.real:.1f}" cy="{place.imag:.1f}" r="{radius:.0f}"/>')


def _text(place: complex, text: str, class_: str) -> Markup:
    return tag("text", text.strip(), x=f"{place.real:.1f}", y=f"{place.imag:.1f}", class_=class_ or "line")
