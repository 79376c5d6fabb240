"""A model of every kind that is exported to Hugging Face, with the name of its data."""

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12}
GPT2 = {"kind": "gpt2", **SIZES, "num_layers": 1, "max_positions": 20}
ROBERTA = {**GPT2, "kind": "roberta"}
TIED = {**SIZES, "tied_embeddings": True, "layers": 2}
LEARNED = {"positions": {"kind": "learned", "max_positions": 20}}
TRANSLATOR = {"kind": "encoder_decoder", **SIZES, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
STACKS = {**TRANSLATOR, "encoder": {"layers": "superposition-4"}, "decoder": {"layers": "nondeterministic-1-2-3"}}
GAUSSIAN = {**TRANSLATOR, "encoder": {"layers": "gaussian"}, "tied_embeddings": "three-way",
            "decoder": {"layers": "hard", "cross_attention": "gaussian"}}  # fmt: skip
POINTERS = [{"attention": "softmax", "stack": {"attention": "stack_pointer", "num_heads": 2}}]

CAUSAL = {
    "gpt2": ("sentences", GPT2, "GPT2LMHeadModel"),
    "gpt2, stream": ("stream", GPT2, "GPT2LMHeadModel"),
    "gpt2, stack": ("sentences", {**GPT2, "stack": "stack_pointer"}, "StackGPT2LMHeadModel"),
    "tied": ("sentences", TIED, "GPT2LMHeadModel"),
    "tied, learned": ("sentences", {**TIED, **LEARNED, "bias": False}, "GPT2LMHeadModel"),
    "tied, no positions": ("stream", {**TIED, "positions": "none"}, "GPT2LMHeadModel"),
    "untied": ("sentences", {**SIZES, "layers": 1}, "StructattnForCausalLM"),
    "tied, post": ("sentences", {**TIED, "norm": "post"}, "StructattnForCausalLM"),
    "rotary": ("sentences", {**TIED, "positions": "rotary"}, "StructattnForCausalLM"),
    "alibi": ("sentences", {**TIED, "positions": "alibi"}, "StructattnForCausalLM"),
    "superposition": ("dyck", {**TIED, "layers": "1.superposition-4"}, "StructattnForCausalLM"),
    "nondeterministic": ("dyck", {**SIZES, "layers": "nondeterministic-1-2-3"}, "StructattnForCausalLM"),
    "stack pointer": ("dyck", {**SIZES, "layers": POINTERS}, "StructattnForCausalLM"),
    "stack_trans": ("dyck", {**SIZES, "layers": "stack_trans-4"}, "StructattnForCausalLM"),
    "hard": ("sentences", {**SIZES, "layers": "hard"}, "StructattnForCausalLM"),
    "gaussian": ("stream", {**SIZES, "layers": "gaussian"}, "StructattnForCausalLM"),
    "two streams": ("dyck", {"kind": "two_stream", "num_layers": 1, **SIZES}, "StructattnForCausalLM"),
    "lstm": ("dyck", {"kind": "lstm", "hidden_size": 6, "stack": "superposition-4"}, "StructattnForCausalLM"),
    "transduction": ("reversal", {**SIZES, "layers": 1}, "StructattnForCausalLM"),
}
MASKED = {
    "roberta": (ROBERTA, "RobertaForMaskedLM"),
    "roberta, stack": ({**ROBERTA, "stack": "stack_pointer"}, "StackRobertaForMaskedLM"),
    "masked": ({"kind": "masked", **SIZES, "layers": "1.superposition-4"}, "StructattnForMaskedLM"),
}
TRANSLATORS = {
    "translator": ("joint", TRANSLATOR),
    "translator, stacks": ("separate", STACKS),
    "translator, gaussian and hard": ("joint", GAUSSIAN),
}
