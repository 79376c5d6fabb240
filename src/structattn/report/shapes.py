"""The fields of scores and analyses that tables and figures show, within bounds that can be drawn."""

from typing import Annotated, Literal

from pydantic import Field

from structattn.support.json_files import Shape

Number = Annotated[float, Field(ge=-1e12, le=1e12)]
Length = Annotated[int, Field(ge=0, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Index = Annotated[int, Field(ge=0, le=10_000)]
_Band = Annotated[str, Field(pattern=r"^(all|\d{1,7}-\d{1,7}|\d{1,7}\+)$")]  # of lengths


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


class _Recognition(Shape):
    groups: dict[str, dict[_Band, _Proportion]]
    rules: dict[str, dict[_Band, _Proportion]]


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
    recognition: _Recognition | None = None
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


class _SuiteShape(Shape):
    sources: dict[str, str] = Field(default={})  # path -> SHA-256


class _Contrastive(_SuiteShape):
    name: str
    per_token: bool
    types: Annotated[dict[str, _Proportion], Field(min_length=1)]
    distances: dict[str, dict[str, _Proportion]]


class _MinimalPairAccuracy(Shape):
    sentence: _Proportion
    known: _Proportion | None
    one_prefix: _Proportion | None
    two_prefix: _Proportion | None


class _Blimp(_SuiteShape):
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


class _Syntaxgym(_SuiteShape):
    name: str
    overall: _PredictionAccuracy
    predictions: Annotated[list[_PredictionAccuracy], Field(min_length=1)]


class _SyntaxgymScores(Shape):
    scores: dict[str, Number]


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


class _AblatedSublayer(Shape):
    layer: Index
    sublayer: str
    side: Literal["encoder", "decoder"] | None
    module: str
    whole: Number
    heads: Annotated[list[Number], Field(max_length=10_000)]


class _Ablation(Shape):
    cross_entropy: Number
    sublayers: list[_AblatedSublayer]


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
    "ablation": _Ablation,
    "attention": _Attention,
    "blimp": _Blimp,
    "contrastive": _Contrastive,
    "comparison": _Comparison,
    "likelihood_comparison": _LikelihoodComparison,
    "chunking": _Chunking,
    "parsing": _Parsing,
    "syntaxgym": _Syntaxgym,
    "syntaxgym_scores": _SyntaxgymScores,
    "extraction": _Extraction,
}
