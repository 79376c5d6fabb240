"""The settings of the training loop."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from structattn.settings.base import Settings, discriminated_by, from_name


class SequenceBatches(Settings):
    """Batches of a fixed number of sequences, all of one length; no padding."""

    kind: Literal["sequences"] = "sequences"
    batch_size: int = Field(default=10, ge=1)


class TokenBatches(Settings):
    """Batches of sequences of similar length, at most ``max_tokens`` tokens with padding."""

    kind: Literal["tokens"] = "tokens"
    max_tokens: int = Field(default=4096, ge=1)


class StreamBatches(Settings):
    """Windows of ``sequence_length`` tokens cut from a continuous stream, ``batch_size`` of them in a batch."""

    kind: Literal["stream"]
    sequence_length: int = Field(default=128, ge=1)
    batch_size: int = Field(default=16, ge=1)


class PairBatches(Settings):
    """Batches of pairs of similar lengths, at most ``max_tokens`` tokens with padding, for translation."""

    kind: Literal["pairs"]
    max_tokens: int = Field(default=2048, ge=1)
    max_tokens_of: Literal["source", "target", "both", "sum"] = Field(
        default="both", description="the side that must not pass the limit: one, each of both, or their sum"
    )
    source_bpe_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="part of the merges left out at each encoding"
    )
    target_bpe_dropout: float = Field(default=0.0, ge=0, lt=1, description="the same for the target (BPE-dropout)")


_Batches = Annotated[
    Annotated[SequenceBatches, Tag("sequences")]
    | Annotated[PairBatches, Tag("pairs")]
    | Annotated[TokenBatches, Tag("tokens")]
    | Annotated[StreamBatches, Tag("stream")],
    discriminated_by("kind", default="sequences"),
]
Batches = Annotated[_Batches, BeforeValidator(from_name, json_schema_input_type=_Batches | str)]


class ConstantSchedule(Settings):
    """The learning rate stays as it is."""

    kind: Literal["constant"] = "constant"


class PlateauSchedule(Settings):
    """Multiply the rate by ``factor`` after more than ``patience`` validations without improvement (torch's rule)."""

    kind: Literal["plateau"] = "plateau"
    factor: float = Field(default=0.9, gt=0, lt=1)
    patience: int = Field(default=5, ge=0)


class WarmupSchedule(Settings):
    """Raise the rate linearly for ``warmup_steps`` updates, then decay it with the inverse square root of updates."""

    kind: Literal["warmup"]
    warmup_steps: int = Field(default=4000, ge=1)


class LinearSchedule(Settings):
    """Raise the rate linearly for ``warmup_steps`` updates, then decay it linearly until update ``total_steps``."""

    kind: Literal["linear"]
    total_steps: int = Field(ge=1, description="100,000 for the small data of You et al. (2020)")
    end_learning_rate: float = Field(default=0.0, ge=0, description="the last rate, which stays; 1e-5 there")
    warmup_steps: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _warmup_ends_before(self) -> Self:
        if self.warmup_steps >= self.total_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps}; expected less than total_steps={self.total_steps}")
        return self


_Schedule = Annotated[
    Annotated[ConstantSchedule, Tag("constant")]
    | Annotated[LinearSchedule, Tag("linear")]
    | Annotated[PlateauSchedule, Tag("plateau")]
    | Annotated[WarmupSchedule, Tag("warmup")],
    discriminated_by("kind", default="plateau"),
]
Schedule = Annotated[_Schedule, BeforeValidator(from_name, json_schema_input_type=_Schedule | str)]


class LabelSmoothing(Settings):
    """Label smoothing in training; scores are never smoothed. The formulas are in `tasks/label_smoothing.py`."""

    epsilon: float = Field(default=0.1, ge=0, lt=1)
    formula: Literal["torch", "you", "annotated", "fairseq"] = Field(
        default="torch",
        description="torch: that of torch and of DuSell & Chiang (2024); you: You et al. (2020); annotated: the "
        "Annotated Transformer; fairseq: that of fairseq",
    )


class AdamSettings(Settings):
    """Adam as torch defines it, weight decay decoupled (Loshchilov & Hutter 2019, as in fairseq)."""

    learning_rate: float = Field(default=0.001, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0, description="of all parameters, times the learning rate")


class TrainingSettings(Settings):
    """How a model is trained. The defaults are those of DuSell & Chiang (2024, section 6)."""

    batches: Batches = SequenceBatches()
    loss: Literal["sequence_sum", "token_mean"] = Field(
        default="sequence_sum", description="sum over time, mean over sequences (the paper); or mean over tokens"
    )
    label_smoothing: LabelSmoothing | None = None
    receptive_field_weight: float = Field(
        default=0.0,
        ge=0,
        description="λ of λR, R the inputs that a position depends on (Discrete Transformer, section 5.1; there 0.1, "
        "with loss: token_mean); models of softmax or hard attention only",
    )
    spelling_weight: float = Field(
        default=1.0, ge=0, description="α of J_word + α J_characters, where a model spells (Luong & Manning 2016)"
    )
    optimizer: AdamSettings = AdamSettings()
    schedule: Schedule = PlateauSchedule()
    max_grad_norm: float | None = Field(default=5.0, gt=0, description="global gradient norm is cut to this")
    gradient_accumulation_steps: int = Field(
        default=1, ge=1, description="batches whose gradients are added before an update"
    )
    precision: Literal["float32", "bf16"] = Field(default="float32", description="bf16: autocast, weights in float32")
    max_epochs: int | None = Field(default=200, ge=1)
    max_updates: int | None = Field(default=None, ge=1)
    max_minutes: float | None = Field(default=None, gt=0, description="stop after this time; outside byte identity")
    select_by: Literal["cross_entropy", "bleu"] = Field(
        default="cross_entropy",
        description="what the best checkpoint and early stopping go by; bleu: of greedy translations of the "
        "validation split",
    )
    validate_every: int | None = Field(default=None, ge=1, description="updates between validations; None: each epoch")
    early_stopping_patience: int | None = Field(
        default=10, ge=1, description="validations without improvement before the end"
    )
    checkpoint_every: int | None = Field(
        default=None, ge=1, description="updates between checkpoints besides those at validations"
    )
    checkpoint_minutes: float | None = Field(
        default=None, gt=0, description="minutes between checkpoints; outside byte identity"
    )
    keep_checkpoints: int = Field(default=2, ge=2, description="newest checkpoints kept, the best apart")
    num_threads: int | None = Field(default=None, ge=1, description="processor threads; None: what torch chooses")
