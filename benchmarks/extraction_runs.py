"""The runs of the study of extraction: their languages, settings and seeds; and how to train them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structattn.cli.demo import MODELS, demo_settings, prepared_data
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train

GRAMMARS = {
    "either": "S -> B [0.5] | C [0.5]\nB -> a B b [0.95] | a b [0.05]\nC -> a C c [0.95] | a c [0.05]\n",
    "lists": "List  -> { Items }\nItems -> List Items [1/5] | n Items [0.5] | ε\n",
}
"""Those of the guides to extraction and to own grammars."""
SIZES = {
    "either": FormalLanguageSizes(10_000, 500, 10, (2, 40), (2, 60)),
    "lists": FormalLanguageSizes(10_000, 500, 10, (10, 30), (10, 60)),
    "dyck": FormalLanguageSizes(10_000, 500, 10, (10, 30), (10, 60)),
}
TWO_STATES, ONE_STATE, SUPERPOSITION = "nondeterministic-2-3-5", "nondeterministic-1-3-5", "superposition-16"
DEMO_STRINGS = 10_000


@dataclass(frozen=True)
class Case:
    """A run to train.

    Args:
        language: of its data.
        stack: of the model; "demo" for the model and the training of ``structattn demo``, "published" for the same
            model as published, "restart" for a restart of the recipe finding_the_stack/restarts.
        seed: of the model.
        budget: updates; or epochs, of the named settings.
    """

    language: str
    stack: str
    seed: int
    budget: int

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return f"{self.language}-{self.stack}-{self.seed}-{self.budget}"


CASES = (
    *(Case("marked-reversal", "demo", seed, 1) for seed in (1, 2, 3)),
    Case("marked-reversal", "published", 1, 1),
    *(Case("dyck", TWO_STATES, seed, 3000) for seed in (1, 2, 3)),
    Case("dyck", ONE_STATE, 1, 3000),
    Case("dyck", SUPERPOSITION, 1, 3000),
    Case("dyck", TWO_STATES, 1, 150),
    *(Case("either", TWO_STATES, seed, 3000) for seed in (1, 2, 3, 4)),
    Case("either", SUPERPOSITION, 1, 3000),
    Case("either", TWO_STATES, 1, 100),
    *(Case("lists", TWO_STATES, seed, 3000) for seed in (1, 2, 3)),
    Case("lists", SUPERPOSITION, 1, 3000),
)
NONDETERMINISTIC = (Case("unmarked-reversal", "restart", 101, 2), Case("hardest-cfl", "restart", 302, 9))
"""Their seeds are those of restarts that learned, in results/finding_the_stack/restarts.trials.jsonl."""


def trained(case: Case, folder: Path) -> Path:
    """Return the run folder of a case, trained if missing."""
    run_dir = folder / "runs" / case.name
    if not (run_dir / "best.json").exists():
        train(_settings(case, folder), run_dir, resume="auto")
    return run_dir


def _settings(case: Case, folder: Path) -> Any:
    data = _prepared(case, folder)
    if case.stack == "demo":
        return demo_settings(data, MODELS["stack-transformer"], case.seed, case.budget, DEMO_STRINGS)
    model, training = _tree(case)
    training["num_threads"] = 1
    tree = {"task": "formal_language", "data": str(data), "model": model, "training": training, "seed": case.seed}
    return resolve_settings(tree, source=case.name)


def _tree(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of model and training."""
    if case.stack == "published":
        training = {"batches": {"kind": "sequences", "batch_size": 10}, "optimizer": {"learning_rate": 0.003}}
        return _model_of_paper(0.0), {**training, "max_epochs": case.budget}
    if case.stack == "restart":
        model = {**_model_of_paper(4.0, 3 if case.language == "hardest-cfl" else 2), "embedding_init": "normal"}
        training = {"batches": {"kind": "sequences", "batch_size": 4}, "optimizer": {"learning_rate": 0.003}}
        more = {"schedule": "linear", "early_stopping_patience": None, "max_epochs": case.budget}
        return model, {**training, **more}
    size = {"d_model": 32, "d_ff": 64, "num_heads": 4, "embedding_init": "normal"}
    training = {"batches": {"kind": "sequences", "batch_size": 10}, "optimizer": {"learning_rate": 0.003}}
    return {**size, "layers": f"1.{case.stack}.1"}, {**training, "max_updates": case.budget}


def _model_of_paper(pop_offset: float, num_states: int = 2) -> dict[str, Any]:
    softmax, stack = [{"attention": "softmax"}] * 2, {"attention": "nondeterministic", "num_states": num_states}
    sizes = {"stack_alphabet_size": 3, "stack_embedding_size": 5, "pop_offset": pop_offset}
    return {"d_model": 28, "d_ff": 56, "layers": [*softmax, {**stack, **sizes}, *softmax]}


def _prepared(case: Case, folder: Path) -> Path:
    """Return the folder of a case's strings, prepared if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    if case.language == "marked-reversal":
        return prepared_data(folder / case.language, 1, DEMO_STRINGS)
    seed = case.seed if case.stack == "restart" else 1  # the recipe draws strings for each restart
    data = folder / case.language
    if not (data / "header.json").exists():
        name = case.language
        if name in GRAMMARS:
            name = str(folder / f"{name}.cfg")
            Path(name).write_text(GRAMMARS[case.language], encoding="utf-8")
        sizes = SIZES.get(case.language, FormalLanguageSizes(test_per_length=1))
        prepare_formal_language(data, name, seed=seed, sizes=sizes)
    return data
