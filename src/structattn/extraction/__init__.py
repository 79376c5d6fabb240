"""What the stack of a trained model has learned, read out as an automaton and a grammar, and checked.

- ``extract``: an ``Extraction`` of a run: letters, transitions, automaton, grammar, agreement, causal check, verdict;
  ``ExtractionSettings`` say how.
- ``write_extraction``: its files.
- ``PushdownAutomaton``: the automaton; ``grammar_of`` gives its grammar, ``minimized`` a smaller one.
- ``Recognizer``: the symbols that can follow each prefix in the strings of a grammar; ``compare`` compares two.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.extraction.automaton import PushdownAutomaton
    from structattn.extraction.comparison import Comparison, compare
    from structattn.extraction.files import write_extraction
    from structattn.extraction.minimization import minimized
    from structattn.extraction.pipeline import Extraction, ExtractionSettings, extract
    from structattn.extraction.to_grammar import grammar_of
    from structattn.tasks.formal_languages.next_symbols import Recognizer

__all__ = [
    "Comparison",
    "Extraction",
    "ExtractionSettings",
    "PushdownAutomaton",
    "Recognizer",
    "compare",
    "extract",
    "grammar_of",
    "minimized",
    "write_extraction",
]

__getattr__, __dir__ = lazy_exports(__name__)
