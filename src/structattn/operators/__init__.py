"""Attention and stack operators: pure functions of tensors, without parameters or settings."""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.operators.gaussian_attention import gaussian_attention, gaussian_weights
    from structattn.operators.hard_attention import hard_attention
    from structattn.operators.nondeterministic_stack import (
        BestRun,
        NondeterministicStackState,
        StackAction,
        nondeterministic_stack,
        nondeterministic_stack_best_run,
        nondeterministic_stack_initial_state,
        nondeterministic_stack_log_weight,
        nondeterministic_stack_posteriors,
        nondeterministic_stack_step,
        nondeterministic_stack_weights,
    )
    from structattn.operators.receptive_field import (
        DecoderReceptiveFields,
        decoder_receptive_fields,
        receptive_field,
        receptive_field_size,
    )
    from structattn.operators.softmax_attention import softmax_attention
    from structattn.operators.stack_pointer import stack_pointer, stack_pointer_step, stack_pointer_weights
    from structattn.operators.stack_rnn import (
        RecurrentStack,
        StackRnnState,
        stack_rnn,
        stack_rnn_initial_state,
        stack_rnn_step,
    )
    from structattn.operators.stratified_stack import (
        StratifiedAction,
        stratified_stack,
        stratified_stack_weights,
    )
    from structattn.operators.superposition_stack import (
        SuperpositionAction,
        superposition_stack,
        superposition_stack_weights,
    )

__all__: list[str] = [
    "BestRun",
    "DecoderReceptiveFields",
    "NondeterministicStackState",
    "RecurrentStack",
    "StackAction",
    "StackRnnState",
    "StratifiedAction",
    "SuperpositionAction",
    "decoder_receptive_fields",
    "gaussian_attention",
    "gaussian_weights",
    "hard_attention",
    "nondeterministic_stack",
    "nondeterministic_stack_best_run",
    "nondeterministic_stack_initial_state",
    "nondeterministic_stack_log_weight",
    "nondeterministic_stack_posteriors",
    "nondeterministic_stack_step",
    "nondeterministic_stack_weights",
    "receptive_field",
    "receptive_field_size",
    "softmax_attention",
    "stack_pointer",
    "stack_pointer_step",
    "stack_pointer_weights",
    "stack_rnn",
    "stack_rnn_initial_state",
    "stack_rnn_step",
    "stratified_stack",
    "stratified_stack_weights",
    "superposition_stack",
    "superposition_stack_weights",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "BestRun": "structattn.operators.nondeterministic_stack",
        "DecoderReceptiveFields": "structattn.operators.receptive_field",
        "NondeterministicStackState": "structattn.operators.nondeterministic_stack",
        "RecurrentStack": "structattn.operators.stack_rnn",
        "StackAction": "structattn.operators.nondeterministic_stack",
        "StackRnnState": "structattn.operators.stack_rnn",
        "StratifiedAction": "structattn.operators.stratified_stack",
        "SuperpositionAction": "structattn.operators.superposition_stack",
        "decoder_receptive_fields": "structattn.operators.receptive_field",
        "gaussian_attention": "structattn.operators.gaussian_attention",
        "gaussian_weights": "structattn.operators.gaussian_attention",
        "hard_attention": "structattn.operators.hard_attention",
        "nondeterministic_stack": "structattn.operators.nondeterministic_stack",
        "nondeterministic_stack_best_run": "structattn.operators.nondeterministic_stack",
        "nondeterministic_stack_initial_state": "structattn.operators.nondeterministic_stack",
        "nondeterministic_stack_log_weight": "structattn.operators.nondeterministic_stack",
        "nondeterministic_stack_posteriors": "structattn.operators.nondeterministic_stack",
        "nondeterministic_stack_step": "structattn.operators.nondeterministic_stack",
        "nondeterministic_stack_weights": "structattn.operators.nondeterministic_stack",
        "receptive_field": "structattn.operators.receptive_field",
        "receptive_field_size": "structattn.operators.receptive_field",
        "softmax_attention": "structattn.operators.softmax_attention",
        "stack_pointer": "structattn.operators.stack_pointer",
        "stack_pointer_step": "structattn.operators.stack_pointer",
        "stack_pointer_weights": "structattn.operators.stack_pointer",
        "stack_rnn": "structattn.operators.stack_rnn",
        "stack_rnn_initial_state": "structattn.operators.stack_rnn",
        "stack_rnn_step": "structattn.operators.stack_rnn",
        "stratified_stack": "structattn.operators.stratified_stack",
        "stratified_stack_weights": "structattn.operators.stratified_stack",
        "superposition_stack": "structattn.operators.superposition_stack",
        "superposition_stack_weights": "structattn.operators.superposition_stack",
    },
)
