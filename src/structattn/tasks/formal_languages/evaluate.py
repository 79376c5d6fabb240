"""Scores of a model of a formal language."""

from dataclasses import replace

from structattn.tasks.formal_languages.dependencies import dependency_scores, has_dependencies
from structattn.tasks.language_modeling.evaluate import language_modeling_scores
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.scores import SplitScores


def formal_language_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split, with the dependencies of its predictions where the true ones are known."""
    scores = language_modeling_scores(run, split, batch_tokens)
    return replace(scores, dependencies=dependency_scores(run, split)) if has_dependencies(run.prepared) else scores
