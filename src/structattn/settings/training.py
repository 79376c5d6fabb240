"""Settings of training."""

from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Annotated, Final, Literal, Self

from pydantic import Discriminator, Field, NonNegativeFloat, PositiveFloat, Tag, model_validator

from structattn.settings.attention import Softmax
from structattn.settings.base import OneOf, Positive, Probability, Settings, Size, of_kind
from structattn.settings.optimizers import (
    AdafactorSettings,
    AdamWSettings,
    EndingSchedule,
    MuonSettings,
    Optimizer,
    PlateauSchedule,
    Schedule,
    TemperatureSchedule,
)
from structattn.settings.transformer import LanguageModelSettings


class SequenceBatches(Settings):
    """Fixed number of sequences of equal length per batch; no padding."""

    kind: Literal["sequences"] = "sequences"
    batch_size: Positive = Field(default=10, description="sequences per batch")


class TokenBatches(Settings):
    """Sequences of similar length, at most ``max_tokens`` tokens per batch including padding."""

    kind: Literal["tokens"] = "tokens"
    max_tokens: Positive = Field(default=4096, description="tokens per batch, including padding")


class StreamBatches(Settings):
    """Windows of ``sequence_length`` tokens of a continuous stream of text, ``batch_size`` of them per batch."""

    kind: Literal["stream"]
    sequence_length: Size = Field(default=128, description="tokens per window")
    batch_size: Size = Field(default=16, description="windows per batch")


class PairBatches(Settings):
    """Sentence pairs of similar lengths, at most ``max_tokens`` tokens per batch including padding; for translation."""

    kind: Literal["pairs"]
    max_tokens: Positive = Field(default=2048, description="tokens per batch, including padding")
    max_tokens_of: Literal["source", "target", "both", "sum"] = Field(
        default="both",
        description="tokens that max_tokens limits: those of one side, of each side (both), or their sum",
    )
    source_bpe_dropout: Probability = Field(
        default=0.0, description="BPE-dropout: probability of skipping a merge of the source"
    )
    target_bpe_dropout: Probability = Field(default=0.0, description="BPE-dropout of the target")


Batches = Annotated[SequenceBatches | PairBatches | TokenBatches | StreamBatches, OneOf("kind", "sequences", of_kind)]


class LabelSmoothing(Settings):
    """Label smoothing of the training loss; the formulas are in `tasks/losses.py`."""

    epsilon: Probability = Field(default=0.1, description="weight of the smoothing distribution")
    formula: Literal["torch", "you", "annotated", "fairseq"] = Field(
        default="torch",
        description="variant of torch and DuSell & Chiang (2024), of You et al. (2020), of the Annotated Transformer, "
        "or of fairseq",
    )


class Masking(Settings):
    """Tokens that masked language models predict, and what replaces them in the input (Devlin et al. 2019)."""

    share: float = Field(default=0.15, gt=0, le=1, description="probability that a token is predicted")
    masked: float = Field(default=0.8, ge=0, le=1, description="probability that the mask replaces a predicted token")
    random: float = Field(
        default=0.1, ge=0, le=1, description="probability that a random symbol replaces it; otherwise it stays"
    )

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        if self.masked + self.random > 1:
            raise ValueError(f"masked {self.masked} and random {self.random} sum to more than 1")
        return self


class Recognition(Settings):
    """Losses of the task recognition besides that of the label, and the split that it is validated on.

    After FLaRe (Butoi et al. 2025): a weight above 0 gives the model another output, for members of the language only.
    """

    language_modeling: NonNegativeFloat = Field(
        default=0.0, description="weight of the cross-entropy of members, a mean over symbols; 0: no such output"
    )
    next_symbols: NonNegativeFloat = Field(
        default=0.0,
        description="weight of the binary cross-entropy of the symbols that may follow each prefix of members, a mean "
        "over prefixes and symbols; 0: no such output",
    )
    validation: Literal["valid", "valid-long"] = Field(
        default="valid", description="split for early stopping and the best checkpoint"
    )

    @property
    def has_auxiliary(self) -> bool:
        """Whether there is another output than that of the label."""
        return bool(self.language_modeling or self.next_symbols)


LABEL_ONLY: Final = Recognition()
"""No auxiliary losses."""


class TreeRegularization(Settings):
    """Loss that makes hidden states tree-like, for sentences with trees (Nandi et al. 2025, TreeReg)."""

    weight: PositiveFloat = Field(
        default=1.0, description="weight of the loss, a mean over sentences; 1 beside loss: token_mean in the paper"
    )
    every: Positive = Field(default=10, description="the loss is added in every update whose number this divides")
    layer: Positive | None = Field(
        default=None, description="number of the layer, from 1; null: three quarters up, as layer 12 of 16 in the paper"
    )
    part: Literal["coordinates", "heads"] = Field(
        default="coordinates",
        description="first numbers of the output of the layer, as in the published code; or first heads of its softmax "
        "attention, before their projection, as in the paper",
    )
    share: float = Field(default=0.25, gt=0, le=1, description="how large a share of the numbers or heads")

    def chosen_layer(self, model: LanguageModelSettings) -> int:
        """Return the number of the layer, from 0."""
        return (self.layer or max(1, len(model.layers) * 3 // 4)) - 1

    def size(self, model: LanguageModelSettings) -> int:
        """Return how many numbers of a state are regularized."""
        if self.part == "coordinates":
            return floor(self._exact_share * model.d_model)
        num_heads = self._num_heads(model)
        return int(self._exact_share * num_heads) * model.d_model // num_heads

    @property
    def _exact_share(self) -> Fraction:
        """The decimal number that was written: 0.29 of 100 are 29."""
        return Fraction(str(self.share))

    def _num_heads(self, model: LanguageModelSettings) -> int:
        layer = model.layers[self.chosen_layer(model)]
        return (layer.num_heads or model.num_heads) if isinstance(layer, Softmax) else 0

    def require_fits(self, model: Settings) -> None:
        """Raise ValueError unless the model has the layer, and the layer the numbers or heads."""
        if not isinstance(model, LanguageModelSettings) or model.loops is not None:
            raise ValueError("needs model.kind: transformer, without loops")
        number, num_layers = self.chosen_layer(model) + 1, len(model.layers)
        if number > num_layers:
            raise ValueError(f"layer: {number}; expected one of the {num_layers} layers of the model, from 1")
        if self.part == "heads":
            num_heads = self._num_heads(model)
            if not num_heads:
                raise ValueError(f"part: 'heads' needs softmax attention in layer {number}")
            if (self._exact_share * num_heads).denominator != 1:
                raise ValueError(f"share: {self.share} of {num_heads} heads; expected a share of whole heads")
        elif not self.size(model):
            raise ValueError(f"share: {self.share} of {model.d_model} numbers; expected at least one of them")


class CurriculumStage(Settings):
    """Stage of a curriculum by length (Elman 1993, Bengio et al. 2009)."""

    max_length: Size = Field(description="maximum number of tokens of a sequence, without <eos>")
    epochs: Positive = Field(default=1, description="number of epochs on these sequences")


class EveryExamples(Settings):
    """Interval that is counted in training examples: sequences, windows or pairs."""

    examples: Positive = Field(
        description="validate after the first update that completes each multiple of so many examples"
    )


ValidationInterval = Annotated[
    Annotated[Positive, Tag("[updates]")] | Annotated[EveryExamples, Tag("[examples]")],
    Discriminator(lambda given: "[examples]" if isinstance(given, dict | EveryExamples) else "[updates]"),
]


class TrainingSettings(Settings):
    """Settings of training; the defaults are those of DuSell & Chiang (2024, section 6)."""

    batches: Batches = Field(
        default=SequenceBatches(), description="kind of batches, a name or a mapping with its fields"
    )
    curriculum: tuple[CurriculumStage, ...] = Field(
        default=(),
        max_length=100,
        description="stages of the first epochs, in which the model is trained on short sequences only; later epochs "
        "have all, and only their validations count against a patience; for language models on sentences or strings",
    )
    loss: Literal["sequence_sum", "token_mean"] = Field(
        default="sequence_sum",
        description="sum over the tokens of a sequence and mean over sequences, as in the paper; or mean over tokens",
    )
    label_smoothing: LabelSmoothing | None = Field(default=None, description="label smoothing; null: none")
    masking: Masking = Field(
        default=Masking(),
        description="masks of the task masked_language_modeling; masked: 1 in the paper of Li et al. (2024), the "
        "defaults in their code",
    )
    recognition: Recognition = Field(default=Recognition(), description="losses of the task recognition")
    receptive_field_weight: NonNegativeFloat = Field(
        default=0.0,
        description="weight λ of the receptive field regularizer (Discrete Transformer, section 5.1; 0.1 in the "
        "paper); for transformers whose layers all have attention weights",
    )
    receptive_field_form: Literal["mean", "union", "printed"] = Field(
        default="mean",
        description="form of the regularizer; mean: number of inputs that a prediction depends on; union: number of "
        "inputs that any prediction of a sequence depends on; printed: as in the paper, with at most 1 for each "
        "prediction; the last two are constant where each prediction depends on its own position and all count",
    )
    receptive_field_own_position: bool = Field(
        default=True, description="whether the regularizer counts that a position depends on its own input"
    )
    receptive_field_recursion: Literal["clamp", "probabilistic"] = Field(
        default="clamp",
        description="receptive fields of several layers; clamp: sums of at most 1 (equation 1); probabilistic: "
        "complement of the product of complements, which does not saturate",
    )
    tree_regularization: TreeRegularization | None = Field(
        default=None, description="TreeReg, for the task language_modeling on sentences with trees; null: none"
    )
    temperature: TemperatureSchedule | None = Field(
        default=None,
        description="schedule of the temperature of hard attention (ours); null: constant, as in the model's settings",
    )
    spelling_weight: NonNegativeFloat = Field(
        default=1.0, description="weight α of the loss of the spelling decoder (Luong & Manning 2016)"
    )
    optimizer: Optimizer = Field(default=AdamWSettings(), description="optimizer, a name or a mapping with its fields")
    schedule: Schedule = Field(
        default=PlateauSchedule(), description="learning rate schedule, a name or a mapping with its fields"
    )
    max_grad_norm: PositiveFloat | None = Field(
        default=5.0, description="maximum of the global gradient norm; null: no clipping"
    )
    gradient_accumulation_steps: Positive = Field(default=1, description="number of batches per update")
    precision: Literal["float32", "bf16"] = Field(
        default="float32",
        description="bf16: autocast to bfloat16, with weights in float32; refused where the device has no bfloat16 "
        "instructions",
    )
    max_epochs: Positive | None = Field(default=200, description="maximum number of epochs; null: no limit")
    max_updates: Positive | None = Field(default=None, description="maximum number of updates; null: no limit")
    max_minutes: PositiveFloat | None = Field(
        default=None, description="maximum training time in minutes; results then depend on the speed of the machine"
    )
    select_by: Literal["cross_entropy", "bleu"] = Field(
        default="cross_entropy",
        description="validation score for early stopping and the best checkpoint; bleu: of greedy translations",
    )
    validate_every: ValidationInterval | None = Field(
        default=None, description="updates between validations, or {examples: N} for examples; null: once per epoch"
    )
    early_stopping_patience: Positive | None = Field(
        default=10, description="stop after this many validations without improvement; null: never"
    )
    checkpoint_every: Positive | None = Field(
        default=None, description="updates between checkpoints; null: at validations only"
    )
    checkpoint_minutes: PositiveFloat | None = Field(
        default=None,
        description="minutes between checkpoints; kept checkpoints then depend on the speed of the machine",
    )
    keep_checkpoints: int = Field(
        default=2, ge=2, description="number of latest checkpoints to keep, in addition to the best"
    )
    num_threads: int | None = Field(
        default=None, ge=1, le=1024, description="number of CPU threads; null: default of torch"
    )
    devices: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="number of processes on each machine, each with a GPU of its own or with a part of the cores; "
        "torchrun's number takes precedence",
    )
    nodes: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="number of machines, on each of which the command is started with MASTER_ADDR, MASTER_PORT and "
        "NODE_RANK in its environment",
    )
    strategy: Literal["ddp", "fsdp"] = Field(
        default="ddp",
        description="what several processes hold; ddp: each the whole model; fsdp: each a part of all weights, "
        "gradients and optimizer state",
    )

    @model_validator(mode="after")
    def _check_curriculum(self) -> Self:
        lengths = [stage.max_length for stage in self.curriculum]
        if lengths != sorted(set(lengths)):
            raise ValueError(f"curriculum: expected increasing values of max_length, got {lengths}")
        return self

    @model_validator(mode="after")
    def _check_regularizers(self) -> Self:
        if self.tree_regularization is not None and self.receptive_field_weight:
            raise ValueError("tree_regularization and receptive_field_weight: expected one of them")
        return self

    @model_validator(mode="after")
    def _check_end_of_schedule(self) -> Self:
        endless = self.max_updates is None and self.max_epochs is None
        if endless and isinstance(self.schedule, EndingSchedule) and self.schedule.total_steps is None:
            raise ValueError("schedule.total_steps: null needs max_updates or max_epochs; both are null")
        return self

    @model_validator(mode="after")
    def _check_strategy(self) -> Self:
        if self.strategy == "fsdp" and isinstance(self.optimizer, AdafactorSettings | MuonSettings):
            raise ValueError(
                f"strategy: 'fsdp' gives each process a part of a matrix; the optimizer {self.optimizer.kind!r} needs "
                "whole matrices: use 'ddp', or another optimizer"
            )
        return self


Unit = Literal["epochs", "updates"]


@dataclass(frozen=True)
class Budget:
    """An amount of training.

    Args:
        count: the number of completed epochs or updates, at least 1.
        unit: which of the two.
    """

    count: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.count} {self.unit if self.count > 1 else self.unit.removesuffix('s')}"
