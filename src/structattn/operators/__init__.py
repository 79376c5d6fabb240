"""The mathematics: tensors in, tensors out; no parameters, no files, no configuration."""

from structattn.operators.nondeterministic_stack import (
    BestRun,
    StackAction,
    nondeterministic_stack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)
from structattn.operators.softmax_attention import softmax_attention
from structattn.operators.superposition_stack import (
    SuperpositionAction,
    superposition_stack,
    superposition_stack_weights,
)

__all__ = [
    "BestRun",
    "StackAction",
    "SuperpositionAction",
    "nondeterministic_stack",
    "nondeterministic_stack_best_run",
    "nondeterministic_stack_log_weight",
    "nondeterministic_stack_posteriors",
    "nondeterministic_stack_weights",
    "softmax_attention",
    "superposition_stack",
    "superposition_stack_weights",
]
