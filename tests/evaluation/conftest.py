"""A toy language with names: common words are translated, names are spelt anew, letter by letter."""

import random
from types import SimpleNamespace

import pytest

from structattn.data.folders.prepared import open_prepared
from structattn.data.parallel.prepare import prepare_parallel
from structattn.data.parallel.tokenizer_training import Coding

WORDS = {"eins": "one", "zwei": "two", "drei": "three"}
LETTERS = {"a": "A", "b": "B", "c": "C"}


def pairs(count, seed):
    generator = random.Random(seed)

    def word():
        if generator.random() < 0.6:
            return generator.choice(list(WORDS.items()))
        name = "".join(generator.choices(list(LETTERS), k=generator.randint(2, 4)))
        return f"x{name}", "X" + "".join(LETTERS[letter] for letter in name)

    found = [[word() for _ in range(generator.randint(1, 4))] for _ in range(count)]
    return [(" ".join(source for source, _ in line), " ".join(target for _, target in line)) for line in found]


def prepare(place, level="word", **counts):
    """Write pairs into files, prepare them, and open the folder."""
    splits = {}
    for seed, (name, count) in enumerate((counts or {"train": 300, "valid": 30, "test": 40}).items()):
        sides = zip(*pairs(count, seed), strict=True)
        splits[name] = [place / f"{name}.{side}" for side in ("de", "en")]
        for path, lines in zip(splits[name], sides, strict=True):
            path.write_text("".join(line + "\n" for line in lines))
    prepare_parallel(place / "data", splits, coding=Coding(level, joint=False, threshold=40 if level == "word" else 0))
    return open_prepared(place / "data")


def tree(data, embedding="character_lstm", **training):
    """Settings of a small translator that reads rare words by their characters, and spells them."""
    sizes = {"width": 32, "heads": 2, "feedforward_width": 48, "dropout": 0.0}
    start = {"initial_weights": "xavier", "initial_embedding": "scaled_normal"}
    encoder = {"layers": 1, "embedding": {"kind": embedding, "words": "rare", "characters": 8}}
    decoder = {"layers": 1, "spelling": {"characters": 8, "layers": 1}}
    model = {"kind": "encoder_decoder", **sizes, **start, "encoder": encoder, "decoder": decoder}
    settings = {"batches": {"kind": "pairs", "tokens": 200}, "loss": "token_mean", "max_epochs": None, **training}
    return {"task": "translation", "data": str(data), "model": model, "training": settings}


@pytest.fixture(scope="session")
def names():
    """The functions above."""
    return SimpleNamespace(pairs=pairs, prepare=prepare, tree=tree)
