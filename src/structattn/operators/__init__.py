"""Attention and stack operators: pure functions of tensors, without parameters or settings."""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.operators.delta_product import delta_product, delta_product_step
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
    from structattn.operators.tree_regularization import tree_regularization, tree_splits

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
    "delta_product",
    "delta_product_step",
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
    "tree_regularization",
    "tree_splits",
]

__getattr__, __dir__ = lazy_exports(__name__)
