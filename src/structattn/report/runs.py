"""Read run folders for a report: settings, run card, events, scores and analyses, within bounds that can be drawn."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from structattn.runs.folder import existing_run
from structattn.runs.logs import mean_rate
from structattn.runs.selection import verified_events
from structattn.support.environment import name_of, printable
from structattn.support.errors import StructattnError
from structattn.support.json_files import Shape, check_shape, read_json

Number = Annotated[float, Field(ge=-1e12, le=1e12)]
Length = Annotated[int, Field(ge=0, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Index = Annotated[int, Field(ge=0, le=10_000)]


class _LengthScore(Shape):
    length: Length
    num_sequences: Count = 0
    cross_entropy: Number | None = None
    lower_bound: Number | None = None
    cross_entropy_difference: Number | None = None
    accuracy: Number | None = None


class _Metric(Shape):
    value: Number
    interval: Number | None = None


class _Baseline(Shape):
    cross_entropy: Number | None = None
    perplexity: Number | None = None
    weights: list[Number] | None = None


class _Data(Shape):
    name: str | None = None
    language: str | None = None
    variant: str | None = None
    train_lengths: Annotated[list[Length], Field(min_length=2, max_length=2)] | None = None
    train_number_of_lengths: Length | None = None


class _Proportion(Shape):
    trials: Count
    value: Number
    lower: Number
    upper: Number


class _Transformation(Shape):
    full_match: _Proportion
    full_match_wrong: _Proportion | None
    probability: Number
    conditional_cross_entropy: Number
    log_ratio: Number | None
    first_word: _Proportion
    first_word_wrong: _Proportion | None
    first_word_probability: Number
    first_word_probability_wrong: Number | None
    main_verb: _Proportion | None
    main_verb_wrong: _Proportion | None
    main_verb_sampled: Number | None
    main_verb_sampled_wrong: Number | None


class _Pseudo(Shape):
    perplexity: float | None = None


class _TextScores(Shape):
    unknown_share: Number | None = None
    perplexity_per_word: float | None = None
    bits_per_character: Number | None = None


class ScoreShape(Shape):
    """Scores of a split."""

    update: Count | None = None
    cross_entropy: Number | None = None
    perplexity: float | None = None
    lower_bound: Number | None = None
    cross_entropy_difference: Number | None = None
    accuracy: Number | None = None
    accuracy_greedy: Number | None = None
    by_length: list[_LengthScore] | None = None
    translation: dict[str, _Metric] | None = None
    mask_seed: int | None = None
    pseudo: _Pseudo | None = None
    baselines: dict[str, _Baseline] | None = None
    transformation: dict[str, _Transformation] | None = None
    text: _TextScores | None = None
    parameters: Count | None = None
    data: _Data | None = None


class _Head(Shape):
    kind: Literal["encoder", "decoder", "cross"]
    layer: Index
    head: Index
    mechanism: str
    mean: Number
    absolute: Number


class _Attention(Shape):
    split: str
    heads: list[_Head]


class _Contrastive(Shape):
    name: str
    per_token: bool
    types: Annotated[dict[str, _Proportion], Field(min_length=1)]
    distances: dict[str, dict[str, _Proportion]]


class _MinimalPairAccuracy(Shape):
    sentence: _Proportion
    known: _Proportion | None
    one_prefix: _Proportion | None
    two_prefix: _Proportion | None


class _Blimp(Shape):
    name: str
    overall: _MinimalPairAccuracy
    fields: dict[str, _MinimalPairAccuracy]
    phenomena: dict[str, _MinimalPairAccuracy]
    paradigms: dict[str, _MinimalPairAccuracy]
    phenomenon_of: dict[str, str]


class _PredictionAccuracy(Shape):
    formula: str
    items: _Proportion
    known: _Proportion | None


class _Syntaxgym(Shape):
    name: str
    overall: _PredictionAccuracy
    predictions: Annotated[list[_PredictionAccuracy], Field(min_length=1)]


class _Difference(Shape):
    first: Number
    second: Number
    first_interval: Number
    second_interval: Number
    p: Number
    signature: str


class _Bin(Shape):
    attribute: str
    binning: str
    low: Number
    high: Number
    sentences: Count
    base: Number
    difference: Number
    lower: Number
    upper: Number


class _Translations(Shape):
    base: str
    run: str


class _Comparison(Shape):
    split: str
    base: str
    translations: _Translations | None = None
    whole: dict[str, _Difference]
    bins: Annotated[list[_Bin], Field(min_length=1)]


class _Updates(Shape):
    base: list[Count]
    run: list[Count]


class _LikelihoodComparison(Shape):
    split: str
    base: str
    updates: _Updates
    first: Number
    second: Number
    first_lower: Number
    first_upper: Number
    second_lower: Number
    second_upper: Number
    difference: Number
    lower: Number
    upper: Number
    p: Number
    examples: Count


class _BracketScores(Shape):
    precision: Number
    recall: Number
    f1: Number


class _Tagging(Shape):
    accuracy: Number
    overall: _BracketScores


class _Stream(Shape):
    stream: str | None
    scores: _Tagging


class _Chunking(Shape):
    corpus: str
    baseline: _Tagging
    streams: Annotated[list[_Stream], Field(min_length=1)]


class _TreeBracketScores(_BracketScores):
    exact: Number


class _TreeScores(Shape):
    labelled: _TreeBracketScores
    unlabelled: _TreeBracketScores


class _Parsing(Shape):
    name: str
    malformed: Number
    scores: _TreeScores
    right_branching: _TreeScores
    left_branching: _TreeScores


class _CausalCheck(Shape):
    difference: Number


class _ExtractedTransition(Shape):
    source: int
    target: int


class _Automaton(Shape):
    transitions: list[_ExtractedTransition]


class _Extraction(Shape):
    verdict: str
    reasons: list[str]
    page: str
    grammar: str | None
    automaton: _Automaton | None
    causal_check: _CausalCheck


ANALYSIS_SHAPES: dict[str, type[Shape]] = {
    "attention": _Attention,
    "blimp": _Blimp,
    "contrastive": _Contrastive,
    "comparison": _Comparison,
    "likelihood_comparison": _LikelihoodComparison,
    "chunking": _Chunking,
    "parsing": _Parsing,
    "syntaxgym": _Syntaxgym,
    "extraction": _Extraction,
}


SPLITS = ("train", "valid", "test", "gen")

_logger = logging.getLogger("structattn")


@dataclass(frozen=True)
class Run:
    """The content of a run folder.

    ``scores`` maps splits to scores, ``analyses`` names of files to contents; ``tokens_per_second`` is the mean rate of
    training, None if it is not in the timing log.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    settings_text: str
    card: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    scores: Mapping[str, Mapping[str, Any]]
    analyses: Mapping[str, Mapping[str, Any]]
    tokens_per_second: float | None

    @property
    def data(self) -> Mapping[str, Any]:
        """The description of the data; empty before the first evaluation."""
        return next((dict(score["data"]) for score in self.scores.values() if score.get("data")), {})

    @property
    def data_name(self) -> str:
        """The name of the data: the language and its variant, or the name of the prepared folder."""
        language = self.data.get("language")
        if language is None:
            return str(self.data.get("name") or Path(str(self.settings.get("data", "data"))).name)
        variant = self.data.get("variant")
        return str(language) if variant in (None, "faithful") else f"{language} ({variant})"

    @property
    def model(self) -> str:
        """A short description of the model; empty before the first evaluation."""
        return next((str(score["model"]) for score in self.scores.values() if score.get("model")), "")

    def analyses_of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the analyses of one kind."""
        return [content for content in self.analyses.values() if content.get("kind") == kind]

    def of(self, event: str) -> list[Mapping[str, Any]]:
        """Return the logged events of one type, in order."""
        return [line for line in self.events if line.get("event") == event]


def json_files(folder: Path) -> list[Path]:
    """Return the JSON files of a folder, the splits first."""
    order = {name: number for number, name in enumerate(SPLITS)}
    paths = [path for path in folder.glob("*.json") if not path.name.startswith(".")]
    return sorted(paths, key=lambda path: (order.get(path.stem, len(SPLITS)), path.stem))


def _read_all(folder: Path, kind: str, shape_of: Callable[[dict[str, Any]], type[Shape]]) -> dict[str, dict[str, Any]]:
    read = ((path, read_json(path, kind)) for path in json_files(folder))
    return {path.stem: check_shape(shape_of(content), content, path) for path, content in read}


def read_run(folder: Path, name: str | None = None) -> Run:
    """Read a run folder. Scores, records and events may be missing, as in a run in progress.

    Raises:
        StructattnError: the folder is not a run folder.
        DataError, SettingsError, CheckpointError: a file in it is damaged; the message names it.
    """
    files = existing_run(folder)
    run = Run(
        name=name_of(folder) if name is None else printable(name),
        folder=folder,
        settings=files.read_settings().model_dump(mode="json"),
        settings_text=files.read_settings_text().decode(),
        card=files.read_card(),
        events=verified_events(files),
        scores=_read_all(folder / "scores", "scores", lambda _: ScoreShape),
        analyses=_read_all(
            folder / "analyses", "analysis", lambda content: ANALYSIS_SHAPES.get(str(content.get("kind")), Shape)
        ),
        tokens_per_second=mean_rate(files.timing),
    )
    _warn_of_old_scores(run)
    return run


def _warn_of_old_scores(run: Run) -> None:
    """Log a warning if a run was trained further after its evaluation."""
    best = [event["update"] for event in run.of("validation") if event.get("improved")][-1:]
    current = {*best, *(event.get("update") for event in run.events[-1:])}
    for split, score in run.scores.items():
        if current and score.get("update") not in current:
            _logger.warning(
                "%s: the scores on %s are from update %s, but the best is now %s; run `structattn evaluate` again",
                *(run.folder, split, score.get("update"), best[0] if best else "unknown"),
            )


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest distinct suffixes of the paths, as text."""
    parts = [(*map(name_of, reversed(folder.resolve().parents)), name_of(folder)) for folder in folders]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def named_folders(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return run folders with distinct names; a folder given twice appears once.

    Raises:
        StructattnError: there are none.
    """
    unique = list({folder.resolve(): folder for folder in folders}.values())
    if not unique:
        raise StructattnError("a report needs at least one run folder")
    return list(zip(unique, _names(unique), strict=True))
