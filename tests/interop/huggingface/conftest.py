"""Small models of random weights, without a network."""

import os

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
PAD, BOS, EOS, VOCABULARY = 0, 1, 2, 40
GPT2_SIZES = {
    "vocab_size": VOCABULARY,
    "n_embd": 12,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 48,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
ROBERTA_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 48,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
LLAMA_SIZES = {**ROBERTA_SIZES, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


@pytest.fixture
def transformers():
    library = pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")
    library.utils.logging.disable_progress_bar()
    return library


@pytest.fixture
def lively():
    """A model in double precision whose weights are large enough for every part to matter."""

    def make(model):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if not ("ln_" in name or "norm" in name.lower()):
                    parameter.normal_(std=0.3)
        return model.double().eval()

    return make


@pytest.fixture
def gpt2(transformers, lively):
    return lambda **more: lively(transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2_SIZES, **more)))


@pytest.fixture
def roberta(transformers, lively):
    return lambda **more: lively(transformers.RobertaForMaskedLM(transformers.RobertaConfig(**ROBERTA_SIZES, **more)))


@pytest.fixture
def roberta_decoder(transformers, lively):
    def make(**more):
        config = transformers.RobertaConfig(**ROBERTA_SIZES, is_decoder=True, **more)
        return lively(transformers.RobertaForCausalLM(config))

    return make


@pytest.fixture
def llama(transformers, lively):
    """A decoder with rotary positions and three query heads to each key head."""
    return lambda **more: lively(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA_SIZES, **more)))


@pytest.fixture
def mistral(transformers, lively):
    """Like the llama, but it may be made to look back only so far."""
    return lambda **more: lively(transformers.MistralForCausalLM(transformers.MistralConfig(**LLAMA_SIZES, **more)))


def tokens(batch, time):
    """Ids that are neither padding nor the end."""
    return torch.randint(3, VOCABULARY, (batch, time), generator=torch.Generator().manual_seed(batch * 100 + time))


def padded(rows, side):
    """Rows of different lengths as one batch: ids and attention mask."""
    width = max(len(row) for row in rows)
    ids, mask = torch.full((len(rows), width), PAD), torch.zeros(len(rows), width, dtype=torch.int64)
    for b, row in enumerate(rows):
        here = slice(width - len(row), None) if side == "left" else slice(len(row))
        ids[b, here], mask[b, here] = row, 1
    return ids, mask


@pytest.fixture
def batch_of():
    return padded


@pytest.fixture
def ids_of():
    return tokens
