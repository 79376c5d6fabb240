"""Small models of many families of transformers, with random weights that matter."""

import transformers

PAD, BOS, EOS, VOCABULARY, LAYERS, WIDTH = 0, 1, 2, 40, 2, 12
_SPECIAL = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
_SIZES = {
    **_SPECIAL,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 1, "head_dim": 6}
_NEOX = {**_SIZES, "hidden_size": 16}  # its rotary positions need heads of 8

DECODERS = {
    "llama": ("LlamaForCausalLM", _GROUPED),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED),
    "mistral": ("MistralForCausalLM", {**_GROUPED, "sliding_window": 4}),
    "gpt_neox": ("GPTNeoXForCausalLM", _NEOX),
    "olmo": ("OlmoForCausalLM", _SIZES),
    "olmo2": ("Olmo2ForCausalLM", _SIZES),
    "gemma3": (
        "Gemma3ForCausalLM",
        {**_GROUPED, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "phi": ("PhiForCausalLM", _NEOX),
    "opt": ("OPTForCausalLM", {**_SIZES, "ffn_dim": 16, "word_embed_proj_dim": WIDTH}),
    "gpt2": ("GPT2LMHeadModel", _SIZES),
    "falcon": ("FalconForCausalLM", {**_SIZES, "alibi": False}),
    "gptj": ("GPTJForCausalLM", {**_NEOX, "rotary_dim": 4}),
}
ENCODERS = {
    "roberta": ("RobertaForMaskedLM", _SIZES),
    "bert": ("BertForMaskedLM", _SIZES),
    "electra": ("ElectraForMaskedLM", {**_SIZES, "embedding_size": 8}),
    "distilbert": (
        "DistilBertForMaskedLM",
        {**_SPECIAL, "dim": WIDTH, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 16},
    ),
    "deberta_v2": ("DebertaV2ForMaskedLM", {**_SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "modernbert": ("ModernBertForMaskedLM", {**_SIZES, "global_attn_every_n_layers": 1}),
}  # fmt: skip


def plain_model(family, **more):
    name, sizes = (DECODERS | ENCODERS)[family]
    model_class = getattr(transformers, name)
    return model_class(model_class.config_class(**sizes, **more))
