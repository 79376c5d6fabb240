"""All tasks by name, and what their topics do for a run: a topic is imported when it is first asked for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from structattn.settings.run import RECOGNITION, TASK_DESCRIPTIONS, RunSettings
from structattn.support.errors import SettingsError
from structattn.support.imports import lazy_function
from structattn.support.plugins import Plugin, Registry, require_arguments
from structattn.tasks.loaded import Explainer, LoadedRun, Predictor, cannot
from structattn.text.folders.prepared import PreparedFolder

if TYPE_CHECKING:
    from structattn.tasks.language_modeling.generator import GenerationSettings, TextGenerator
    from structattn.tasks.scores import Score, SplitScores
    from structattn.tasks.task import AnyTask

Scorer: TypeAlias = "Callable[..., list[Score]]"
"""Texts, or pairs for translation, and the number of the first of them -> the score of each."""


def _of_topic(name: str) -> Callable[..., Any]:
    """Return a function of a topic, ``topic.module.function``, whose module is imported when it is first called."""
    module, _, function = name.rpartition(".")
    return lazy_function(f"structattn.tasks.{module}", function)


_evaluate = _of_topic("language_modeling.evaluate.language_modeling_scores")
_explainer = _of_topic("language_modeling.predict.TextExplainer")
_scorer = _of_topic("language_modeling.predict.make_text_scorer")
_generator = _of_topic("language_modeling.generator.TextGenerator")


def _no_predictor(run: LoadedRun, batch_size: int) -> Predictor:
    raise cannot(
        run, "predict answers", "a transduction, recognition, question formation, tense reinflection or a parser"
    )


@dataclass(frozen=True)
class TaskKind:
    """A kind of task, and what its topic does for a run; the defaults are those of causal language models.

    Functions of a run raise UsageError if the run is of another kind than they expect.

    Args:
        name: the value of ``task`` in the settings.
        description: one line for `structattn list`.
        models: the kinds of models it can train.
        build: makes the task from a prepared folder and the settings of the run.
        evaluate: run, split, tokens of a batch -> scores of the split.
        explainer: run -> what the model does on single examples.
        scorer: run, whether each token is scored, batch size -> scorer of texts.
        generator: run, settings -> generator of texts.
        predictor: run, batch size -> predictor of answers.
        baselines: run, split -> scores of simple models; None if there are none.
    """

    name: str
    description: str
    models: tuple[str, ...]
    build: "Callable[[PreparedFolder, RunSettings], AnyTask]"
    evaluate: "Callable[[LoadedRun, str, int], SplitScores]" = _evaluate
    explainer: Callable[[LoadedRun], Explainer] = _explainer
    scorer: Callable[[LoadedRun, bool, int], Scorer] = _scorer
    generator: "Callable[[LoadedRun, GenerationSettings], TextGenerator]" = _generator
    predictor: Callable[[LoadedRun, int], Predictor] = _no_predictor
    baselines: Callable[[LoadedRun, str], Mapping[str, Any]] | None = None

    def register(self, plugin: Plugin) -> None:
        """Add this to the tasks.

        Raises:
            UsageError: the name is taken, or ``build`` takes other arguments.
        """
        require_arguments(f"task {self.name!r}: build", self.build, "prepared", "settings")
        TASK_DESCRIPTIONS.add(self.name, self.description, plugin)
        TASKS.add(self.name, self, plugin)


_ENCODER_DECODER = ("encoder_decoder", "two_stream_encoder_decoder")
_CAUSAL = ("transformer", "two_stream", "lstm", "rnn", "gpt2")
_MASKED = ("masked", "roberta")


def _built_in(name: str, models: Sequence[str], build: str, **functions: str) -> TaskKind:
    of_topic = {field: _of_topic(function) for field, function in functions.items()}
    return TaskKind(name, TASK_DESCRIPTIONS[name], tuple(models), _of_topic(build), **of_topic)


def _transduction(name: str, models: Sequence[str]) -> TaskKind:
    return _built_in(
        name,
        models,
        "transductions.task.transduction_task",
        evaluate="transductions.evaluate.transduction_scores",
        explainer="transductions.predict.TransductionExplainer",
        predictor="transductions.predict.TransductionPredictor",
    )


_KINDS = (
    _built_in(
        "formal_language",
        _CAUSAL,
        "language_modeling.task.formal_language_task",
        evaluate="formal_languages.predict.formal_language_scores",
        generator="formal_languages.predict.make_generator",
    ),
    _built_in(
        "language_modeling",
        _CAUSAL,
        "language_modeling.task.language_modeling_task",
        baselines="language_modeling.ngrams.text_baselines",
    ),
    _built_in(
        "masked_language_modeling",
        _MASKED,
        "masked.task.masked_language_modeling_task",
        evaluate="masked.evaluate.masked_scores",
        explainer="masked.predict.MaskedExplainer",
        scorer="masked.predict.MaskedTextScorer",
    ),
    _transduction("masked_transduction", (*_CAUSAL, *_MASKED)),
    _transduction("autoregressive_transduction", _CAUSAL),
    _built_in(
        RECOGNITION,
        ("transformer", "lstm", "rnn"),
        "recognition.task.recognition_task",
        evaluate="recognition.evaluate.recognition_scores",
        explainer="recognition.predict.RecognitionExplainer",
        predictor="recognition.predict.RecognitionPredictor",
    ),
    _built_in(
        "translation",
        _ENCODER_DECODER,
        "translation.task.translation_task",
        evaluate="translation.evaluate.translation_scores",
        explainer="translation.explain.PairExplainer",
        scorer="translation.translators.make_text_pair_scorer",
    ),
)
TASKS: Registry[TaskKind] = Registry("task", {kind.name: kind for kind in _KINDS})

_TREES: Mapping[str, Any] = {"predictor": _of_topic("parsing.predict.make_predictor")}
_TRANSFORMATIONS: Mapping[str, Any] = {
    "evaluate": _of_topic("transformations.evaluate.evaluate_transformation"),
    "predictor": _of_topic("transformations.predict.make_predictor"),
}
_OF_DATA: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("translation", "tree_tags"): _TREES,
    ("translation", "transformation"): _TRANSFORMATIONS,
    ("language_modeling", "transformation"): _TRANSFORMATIONS,
}
"""Task and an entry of the header of its data -> what another topic does for such runs instead."""


def kind_of(run: LoadedRun) -> TaskKind:
    """Return what the topic of a run does for it; trees and transformations are topics of their own."""
    task = run.settings.task
    kind = TASKS[task]
    for entry in run.prepared.header.extra:
        kind = replace(kind, **_OF_DATA.get((task, entry), {}))
    return kind


def require_trainable(task: str, model: str) -> None:
    """Reject a kind of model that a task cannot train.

    Raises:
        SettingsError: the message lists the kinds that it can train.
    """
    trainable = TASKS[task].models
    if model not in trainable:
        raise SettingsError(f"model.kind: the task {task!r} trains {' or '.join(map(repr, trainable))}, got {model!r}")
