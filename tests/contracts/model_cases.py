"""The models that ``test_models.py`` checks: every kind of model with every mechanism, kind of positions and option."""

from itertools import cycle
from typing import Any

from tests.contracts.model_harness import ModelCase

from structattn.settings.embeddings import POSITIONS
from structattn.settings.mechanisms import MECHANISMS

SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2}
SMALL = {"stack_trans": {"stack_embedding_size": 4, "num_heads": 2, "depth": 3}}
BUILT_IN = {name: entry for name, entry in MECHANISMS.items() if name not in MECHANISMS.plugins}
IN_LAYERS = [name for name, entry in BUILT_IN.items() if entry.layer or entry.self_attention]
ADDED = [name for name, entry in BUILT_IN.items() if entry.added_stack]
ACROSS = [name for name, entry in BUILT_IN.items() if entry.cross_attention]
IN_NETWORKS = [name for name, entry in BUILT_IN.items() if entry.recurrent_stack]


def mechanism(name: str, **options: Any) -> dict[str, Any]:
    """Return the settings of a mechanism, with small numbers for the sizes of its short form."""
    sizes = {size: number for number, size in enumerate(MECHANISMS[name].sizes, start=2)}
    return {"attention": name, **sizes, **SMALL.get(name, {}), **options}


SOFTMAX = mechanism("softmax")


def transformer(layers: list[Any], kind: str = "transformer", **options: Any) -> dict[str, Any]:
    """Return the settings of a language model with these layers."""
    return {"kind": kind, **SIZES, "layers": layers, **options}


def sides(encoder: dict[str, Any], decoder: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an encoder-decoder."""
    return {"kind": "encoder_decoder", **SIZES, "encoder": encoder, "decoder": decoder}


RATES = {"dropout": 0.3, "embedding_dropout": 0.3, "attention_dropout": 0.3, "hidden_dropout": 0.3}
NORMS = {"norm": "post", "bias": False, **RATES}
TIED = {"tied_embeddings": True, "d_ff": None}
BOTH_TIES = ({"tied_embeddings": "two-way", "d_ff": None}, {"tied_embeddings": "three-way"})
TWO_STREAM = {**NORMS, "attention_dropout": 0.0}, {"semantic_positions": False}
OTHER_POSITIONS = (
    {"kind": "sinusoidal", "layout": "halves", "denominator": "d-2"},
    {"kind": "rotary", "layout": "halves"},
    {"kind": "alibi", "variant": "shifted"},
)
LOOPS = (
    {"count": "log"},
    {"count": 3},
    {"count": "log", "maximum": 2, "injected": False},
    {"count": 2, "prelude": 1, "coda": 1},
    {"count": "log", "factor": 2, "prelude": 1},
)
SIZE = {"character_embedding_size": 3}
C2W, CHARACTER_LSTM = {"kind": "c2w", "hidden_size": 4, **SIZE}, {"kind": "character_lstm", **SIZE}
EMBEDDINGS = ("table", C2W, CHARACTER_LSTM)


def of_layers() -> dict[str, Any]:
    """Transformers with each mechanism, before softmax attention, which passes on what it has from a wrong position.

    Each takes the next kind of positions, added stack and other options.
    """
    stacks = cycle([None, *map(mechanism, ADDED)])
    positions, options = cycle([*POSITIONS, *OTHER_POSITIONS]), cycle(({}, NORMS, TIED))
    models: dict[str, Any] = {}
    for name in IN_LAYERS:
        pair = [mechanism(name), SOFTMAX | {"stack": next(stacks)}]
        models[f"transformer, {name}"] = transformer(pair, positions=next(positions), **next(options))
        models[f"masked, {name}"] = transformer(pair, kind="masked", positions=next(positions), **next(options))
    return models


def of_loops() -> dict[str, Any]:
    """Looped transformers with each kind of loops and two mechanisms, and with the next positions and embeddings."""
    positions, embeddings = cycle(POSITIONS), cycle(EMBEDDINGS)
    # A table alone can be tied, and not all layers have attention weights, whose own rate is refused without.
    options = cycle((TIED, NORMS | {"attention_dropout": None}, {}))
    models: dict[str, Any] = {}
    for loops, first, second in zip(LOOPS, IN_LAYERS[::2], cycle(IN_LAYERS[1::2]), strict=False):
        layers = [mechanism(first), mechanism(second), *[SOFTMAX] * ("coda" in loops)]
        chosen = {"positions": next(positions), "embedding": next(embeddings), **next(options)}
        models[f"looped, {first}, {second}"] = transformer(layers, loops=loops, **chosen)
    return models


def of_sides() -> dict[str, Any]:
    """Encoder-decoders with each mechanism on each side, and with the next cross-attention, positions and options."""
    across, positions, options = cycle(ACROSS), cycle(POSITIONS), cycle((NORMS, *BOTH_TIES))
    models = {}
    for name, following in zip(IN_LAYERS, IN_LAYERS[1:] + IN_LAYERS[:1], strict=True):
        encoder = {"layers": [mechanism(name)]}
        decoder = {"layers": [mechanism(following), SOFTMAX], "cross_attention": [mechanism(next(across)), SOFTMAX]}
        models[f"encoder_decoder, {name}, {following}"] = sides(encoder, decoder) | {
            "positions": next(positions), **next(options)
        }  # fmt: skip
    return models


def of_two_streams() -> dict[str, Any]:
    """Two streams with each kind of positions, and with the next options."""
    models: dict[str, Any] = {}
    streams = {"kind": "two_stream", **SIZES, "num_layers": 2}
    both = {"kind": "two_stream_encoder_decoder", **SIZES, "num_layers": 1}
    options, options_of_both = cycle((*TWO_STREAM, TIED)), cycle((*TWO_STREAM, *BOTH_TIES))
    for name in POSITIONS:
        models[f"two_stream, {name}"] = {**streams, "positions": name, **next(options)}
        models[f"two_stream_encoder_decoder, {name}"] = {**both, "positions": name, **next(options_of_both)}
    # Few hidden units can all be 0 at two positions, whose scores are then equal, and chosen from by rounding.
    models["two_stream, simplified"] = {**streams, "d_ff": 24, "layer_form": "simplified"}
    return models


VARIANTS = [
    mechanism("gaussian", num_learned_heads=1, kernel="window"),
    mechanism("gaussian", offsets=[-2.0, 0.0], kernel="index", feedforward=False),
    mechanism("hard", num_heads=1),
    mechanism("delta_product", num_heads=1, key_size=3, value_size=2, gate=False, negative_eigenvalues=False,
              convolution_size=0),
    SOFTMAX | {"num_heads": 4},
    mechanism("superposition", stack_embedding_size=4, num_heads=2, pushed_activation="none"),
    mechanism("nondeterministic", pushed_activation="exp", window=2, pop_offset=2.0),
    mechanism("stack_pointer", bottom="learned", num_heads=2),
    mechanism("stack_trans", form="paper", read="before"),
]  # fmt: skip
CROSS_VARIANT = mechanism("gaussian", length_ratio=1.5, floor=False, num_learned_heads=1)
COUPLED = C2W | {"coupled": True}
SPELLED = {
    "c2w": ({"embedding": C2W}, {"embedding": CHARACTER_LSTM}),
    "rare c2w": ({"embedding": COUPLED | {"words": "rare"}}, {"embedding": C2W, "spelling": SIZE | {"hidden_size": 4}}),
    "rare lstm": ({"embedding": CHARACTER_LSTM | {"words": "rare"}}, {"spelling": SIZE | {"path": "same"}}),
}


def of_variants() -> dict[str, Any]:
    """Layers of other sizes, stacks over depth, loops of masked models, and sides with words by their characters."""
    models: dict[str, Any] = {
        "transformer, variants": transformer(VARIANTS),
        "masked, variants": transformer(VARIANTS[:3], kind="masked"),
        "encoder_decoder, variants": sides(
            {"layers": VARIANTS[:2]}, {"layers": [SOFTMAX], "cross_attention": [CROSS_VARIANT]}
        ),
    }
    pair = [mechanism("superposition"), SOFTMAX]
    for kind in ("transformer", "masked"):
        for form, read in (("released", "after"), ("paper", "before")):
            stack = mechanism("stack_trans", form=form, read=read)
            models[f"{kind}, {form} depth stack"] = transformer(pair, kind=kind, depth_stack=stack)
    for number, loops in enumerate(LOOPS[:3]):
        models[f"masked, loops {number}"] = transformer([SOFTMAX], kind="masked", loops=loops)
    for name, (source, target) in SPELLED.items():
        models[f"encoder_decoder, {name}"] = sides({"layers": [SOFTMAX], **source}, {"layers": [SOFTMAX], **target})
    return models


DEEP = {"num_layers": 2, "learned_initial_state": True, "dropout": 0.3}
STACKS = {
    "bounded": mechanism("superposition", depth=2, pushed_activation="none"),
    "window": mechanism("nondeterministic", window=2, pushed_activation="exp"),
    "sigmoid": mechanism("stratified", pushed_activation="sigmoid"),
    "linear": mechanism("stratified", pushed_activation="none"),
}


def of_networks() -> dict[str, Any]:
    """Recurrent models without a stack and with each, in one layer or joined to the output of two."""
    models: dict[str, Any] = {}
    for kind in ("lstm", "rnn"):
        plain = {"kind": kind, "hidden_size": 5}
        models[kind] = plain
        models[f"{kind}, deep"] = plain | DEEP | {"stack": mechanism("superposition") if kind == "rnn" else None}
        for name, embedding in zip(IN_NETWORKS, cycle(EMBEDDINGS), strict=False):
            stack, tied = {"stack": mechanism(name)}, {"tied_embeddings": name == "superposition"}
            models[f"{kind}, {name}"] = plain | stack | {"embedding": embedding, "embedding_size": 4}
            joined = {"join_reading": True, "num_layers": 2 if kind == "lstm" else 1}
            models[f"{kind}, joined {name}"] = plain | DEEP | tied | stack | joined
    models |= {f"lstm, {name}": models["lstm"] | {"stack": stack} for name, stack in STACKS.items()}
    models["rnn, relu"] = models["rnn"] | {"activation": "relu", "stack": STACKS["bounded"]}
    return models


BACKWARD = {"kind": "sinusoidal", "direction": "backward"}


def of_tasks() -> dict[str, ModelCase]:
    """Models that some tasks alone have: recognizers, and positions that count from the end."""
    both = {"language_modeling": 1.0, "next_symbols": 1.0}
    pair, network = [mechanism("superposition"), SOFTMAX], {"hidden_size": 5, "embedding_size": 5}
    blanks = transformer(pair, positions="none", loops={"padding": 2, "padding_per_symbol": 3})
    return {
        "recognizer": ModelCase(transformer(pair), "recognition", both),
        "recognizer, blanks": ModelCase(blanks, "recognition", both),
        "recognizer, lstm": ModelCase({"kind": "lstm", **network}, "recognition", both),
        "recognizer, rnn": ModelCase({"kind": "rnn", "hidden_size": 5}, "recognition", {"next_symbols": 1.0}),
        "transformer, backward": ModelCase(transformer(pair, positions=BACKWARD), "autoregressive_transduction"),
        "masked, backward": ModelCase(transformer(pair, kind="masked", positions=BACKWARD)),
    }


def of_transformers_library() -> dict[str, Any]:
    """GPT-2 and RoBERTa without a stack, and in turn with each."""
    kinds = "gpt2", "roberta"
    models: dict[str, Any] = {kind: {"kind": kind, **SIZES, "num_layers": 2, "max_positions": 16} for kind in kinds}
    for kind, name in zip(cycle(kinds), ADDED, strict=False):
        placement = {"layers": [-1], "gate": True} if name == "superposition" else {}
        models[f"{kind}, {name}"] = models[kind] | {"stack": mechanism(name, **placement)}
    return models


_MODELS = of_layers() | of_loops() | of_sides() | of_two_streams() | of_variants() | of_networks()
CASES = {**{name: ModelCase(model) for name, model in _MODELS.items()}, **of_tasks()}
HUGGINGFACE_CASES = {name: ModelCase(model) for name, model in of_transformers_library().items()}
"""Of models of transformers: that library takes seconds to import."""
