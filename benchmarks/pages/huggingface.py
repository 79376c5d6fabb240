"""Generation in transformers."""

from pages.tables import results_of, table


def section() -> str:
    """Return the section on generation in transformers."""
    found = results_of("huggingface_generation")
    names = {"cached": "cache", "uncached": "no cache", "first": "first token"}
    rows = [
        (model, *(f"{by_length[length][kind]:.1f}" for kind in names for length in by_length))
        for model, by_length in found["milliseconds"].items()
    ]
    columns = [f"{name}, {length}" for name in names.values() for length in next(iter(found["milliseconds"].values()))]
    return f"""## Generation in transformers

`python benchmarks/huggingface_generation.py`, processor time of one thread on {found["processor"]}: milliseconds of a
generated token after texts of 64 and 512 tokens, of a Llama (d 128, 2 layers) with a stack after its first block, and
of exported language models with a stack as their second layer. With a cache a token costs one step; the first one
catches up with the text by one step a token.

{table(("model", *columns), rows)}"""
