"""Constituency parsing with trained models: the translation of a sentence into its linearized tree, repaired."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from structattn.settings.evaluation import EvaluationSettings
from structattn.support.errors import UsageError
from structattn.tasks.loaded import TEXTS, LoadedRun, Prediction, Predictor
from structattn.tasks.parsing.prepare import TREE_TAGS
from structattn.tasks.parsing.trees import Repaired, Tags, bracketed, repair
from structattn.tasks.translation.predict import SOURCE_LINES, Translator
from structattn.tasks.translation.translators import make_translator


def treebank_words(line: str) -> list[str]:
    """Return the words of a line, parentheses spelled -LRB- and -RRB- as in treebanks, whose trees are bracketed."""
    escaped = line.replace("(", "-LRB-").replace(")", "-RRB-").replace("\t", " ")
    return [word for word in escaped.split(" ") if word]


@dataclass(frozen=True)
class Parser:
    """Parses sentences; every tree has exactly the words of its sentence."""

    translator: Translator
    tags: Tags

    def __call__(
        self,
        sentences: Sequence[Sequence[str]],
        advance: Callable[[int], object] = lambda count: None,
        first: int = 1,
        path: Path = SOURCE_LINES,
    ) -> list[Repaired | None]:
        """Return the best tree of each sentence; None for a sentence without words.

        Raises:
            DataError: a sentence cannot be encoded or is too long for the model.
        """
        translations = self.translator([" ".join(words) for words in sentences], 1, advance, first, paths=(path, path))
        return [
            repair([symbol for symbol in best[0].text.split(" ") if symbol] if best else [], words, self.tags)
            if words
            else None
            for words, best in zip(sentences, translations, strict=True)
        ]


def make_parser(run: LoadedRun, how: EvaluationSettings | None = None) -> Parser:
    """Return a parser with the model of a run.

    Raises:
        UsageError: the run was not trained on trees.
    """
    if TREE_TAGS not in run.prepared.header.extra:
        raise UsageError(f"{run.run_dir}: was not trained on trees; see `structattn prepare trees`")
    return Parser(make_translator([run], how), run.prepared.header.extra[TREE_TAGS])


def make_predictor(run: LoadedRun, batch_size: int = 64) -> Predictor:
    """Return a predictor of bracketed trees with the model of a run."""
    parser = make_parser(run)
    parser = replace(parser, translator=replace(parser.translator, batch_size=batch_size))

    def predict(
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        trees = parser([treebank_words(line) for line in inputs], advance, first, path)
        return [
            Prediction("") if tree is None else Prediction(bracketed(tree.tree), repaired=tree.malformed)
            for tree in trees
        ]

    return predict
