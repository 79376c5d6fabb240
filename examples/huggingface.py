"""Structured attention in Hugging Face's GPT-2 and RoBERTa: small, randomly initialized models on strings of brackets.

    python examples/huggingface.py

For each kind of stack, stack attention is added to every layer of a GPT-2, which learns to close brackets and then
completes strings, and of a RoBERTa, which learns to fill in masked brackets. Then GPT-2 is trained with Gaussian and
with hard attention instead of softmax attention. Takes half a minute.
"""

import random
import tempfile

import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)
from transformers.utils import logging

from structattn.interop.huggingface import (
    NondeterministicStack,
    PointerStack,
    SuperpositionStack,
    add_stack_attention,
    register_attention,
)

TOKENS = ["<pad>", "<bos>", "<eos>", "<mask>", "(", ")", "[", "]"]
PAD, BOS, EOS, MASK = range(4)
CLOSING = {"(": ")", "[": "]"}
SPECIAL = {"vocab_size": len(TOKENS), "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
STACKS = {
    "stack pointer": PointerStack(),
    "superposition": SuperpositionStack(stack_embedding_size=16),
    "nondeterministic": NondeterministicStack(num_states=2, stack_alphabet_size=3, stack_embedding_size=4),
}


def brackets(pairs: int) -> str:
    """Return a random well-nested string with ``pairs`` pairs of brackets."""
    text, unclosed = "", []
    while pairs or unclosed:
        if pairs and (not unclosed or random.random() < 0.5):
            unclosed.append(random.choice("(["))
            text, pairs = text + unclosed[-1], pairs - 1
        else:
            text += CLOSING[unclosed.pop()]
    return text


def ids_of(text: str) -> list[int]:
    """Return the ids of <bos> and the brackets."""
    return [BOS, *(TOKENS.index(bracket) for bracket in text)]


def batch_of(rows: list[list[int]], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of ids on the given side; return the ids and the attention mask."""
    width = max(len(row) for row in rows)
    padding = [[PAD] * (width - len(row)) for row in rows]
    pairs = zip(padding, rows, strict=True)
    ids = torch.tensor([gap + row if side == "left" else row + gap for gap, row in pairs])
    return ids, (ids != PAD).long()


def train(model: PreTrainedModel, steps: int, masked: bool) -> None:
    """Train on random strings; with ``masked``, predict a third of the brackets from the others."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        ids, mask = batch_of([[*ids_of(brackets(random.randint(3, 8))), EOS] for _ in range(16)], "right")
        labels = ids.masked_fill(mask == 0, -100)
        if masked:
            hidden = (torch.rand(ids.shape) < 0.3) & (ids > MASK)
            labels, ids = ids.masked_fill(~hidden, -100), ids.masked_fill(hidden, MASK)
        loss = model(ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(f"    loss {losses[0]:.2f} -> {sum(losses[-5:]) / 5:.2f}")
    model.eval()


def complete(model: PreTrainedModel, prefixes: list[str]) -> None:
    """Complete the strings in one batch with three beams; the cache holds the state of the stacks."""
    ids, mask = batch_of([ids_of(text) for text in prefixes], "left")
    outputs = model.generate(ids, attention_mask=mask, num_beams=3, do_sample=False, max_new_tokens=12)
    for prefix, row in zip(prefixes, outputs[:, ids.shape[1] :].tolist(), strict=True):
        print(f"    {prefix} -> {''.join(TOKENS[token] for token in row if token > MASK)}")


def small_gpt2() -> GPT2LMHeadModel:
    """Return a GPT-2 with two layers of size 32 and random weights."""
    return GPT2LMHeadModel(GPT2Config(**SPECIAL, n_embd=32, n_layer=2, n_head=4, n_positions=40))


def small_roberta() -> RobertaForMaskedLM:
    """Return a RoBERTa with two layers of size 32 and random weights."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return RobertaForMaskedLM(RobertaConfig(**SPECIAL, **sizes, max_position_embeddings=40))


def main() -> None:
    """Train both models with every stack, then GPT-2 without softmax attention."""
    torch.manual_seed(0)
    random.seed(0)
    logging.disable_progress_bar()
    for name, stack in STACKS.items():
        print(f"GPT-2, {name}")
        model = add_stack_attention(small_gpt2(), stack)
        train(model, steps=60, masked=False)
        complete(model, ["([", "((", "[[()", "[()(["])
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            loaded = AutoModelForCausalLM.from_pretrained(folder)
        print(f"    saved and loaded as {type(loaded).__name__}")
    for name, stack in STACKS.items():
        print(f"RoBERTa, {name}")
        train(add_stack_attention(small_roberta(), stack), steps=30, masked=True)
    register_attention()
    for name in ("structattn_gaussian", "structattn_hard"):
        print(f"GPT-2, {name}")
        model = small_gpt2()
        model.set_attn_implementation(name)
        train(model, steps=60, masked=False)
        complete(model, ["([", "[[()"])


if __name__ == "__main__":
    main()
