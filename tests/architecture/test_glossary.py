"""Keeps identifiers with a standard name elsewhere in the field out of the tree.

Qualified names only: a settings field ``width`` is banned, the English word is not.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "structattn"

# name -> the field's word
SETTINGS_FIELDS = {
    "width": "d_model",
    "feedforward_width": "d_ff",
    "heads": "num_heads",
    "learned_heads": "num_learned_heads",
    "units": "hidden_size",
    "vector": "stack_embedding_size",
    "states": "num_states",
    "symbols": "stack_alphabet_size",
    "characters": "character_embedding_size",
    "accumulate": "gradient_accumulation_steps",
    "clip_norm": "max_grad_norm",
    "threads": "num_threads",
}
CONSTRUCTOR_PARAMETERS = {
    "width": "d_model",
    "heads": "num_heads",
    "units": "hidden_size",
    "vector": "stack_embedding_size",
    "states": "num_states",
}
DEFINITIONS = {  # classes, functions and methods, anywhere in the tree
    "told_apart_by": "discriminated_by",
    "take_step": "training_step",
    "StoredPast": "KeyValueCache",
    "_Shelf": "_Pool",
    "slots": "row_indices",
    "and_one_more": "append",
    "nothing": "empty",
    "IntoHeads": "InputProjection",
    "OutOfHeads": "OutputProjection",
    "placed": "apply_positions",
    "Lookup": "AttentionInputs",
    "Choice": "HardSelection",
    "fully_connected": "xavier_matrices",
    "Coding": "TokenizerSettings",
    "Standing": "SweepStatus",
    "Ending": "JobResult",
    "deaths": "crash_counts",
}
TASK_DEFINITIONS = {"nats": "loss_sum", "divisor": "loss_denominator", "symbols": "num_tokens"}
MODULES = {
    "gradient": "cpu",
    "stored_past": "key_value_cache",
    "stored_memory": "cross_attention_cache",
    "stored_reading": "cached_attention",
    "hard_reading": "hard_selection",
    "one_by_one": "decode_loop",
    "choosing": "logits",
    "procedures": "presets",
    "finished": "completed",
    "languages": "tokenizer_training",
    "sides": "parallel_side",
    "reach": "position_limits",
    "running": "run",
    "making": "data_preparation",
    "student": "t_distribution",
}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes below ``node`` but expressions, which define none of these names."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def definitions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names of all classes, functions and methods, and of fields of classes, with their lines."""
    for node in statements(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            yield from class_fields(node)


def class_fields(node: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.lineno


def constructor_parameters(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from ((argument.arg, argument.lineno) for argument in node.args.args + node.args.kwonlyargs)


def offences(paths: list[Path], names: Iterator, banned: dict[str, str]) -> list[str]:
    """Return ``FILE:LINE: NAME; use WORD`` for every banned name that ``names`` yields for a file."""
    may_define = re.compile(rf"\b({'|'.join(banned)})\s*[][(:=,)]")  # parsing all files takes longer than all else here
    texts = [(path, path.read_text(encoding="utf-8")) for path in paths]
    return [
        f"{path}:{line}: {name}; use {banned[name]}"
        for path, text in texts
        if may_define.search(text)
        for name, line in names(ast.parse(text))
        if name in banned
    ]


def python_files(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def all_class_fields(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in statements(tree):
        if isinstance(node, ast.ClassDef):
            yield from class_fields(node)


def test_settings_fields_have_the_standard_names():
    assert offences(python_files(SOURCE / "settings"), all_class_fields, SETTINGS_FIELDS) == []


@pytest.mark.parametrize("package", ["attention", "models"])
def test_constructor_parameters_have_the_standard_names(package):
    assert offences(python_files(SOURCE / package), constructor_parameters, CONSTRUCTOR_PARAMETERS) == []


def test_definitions_have_the_standard_names():
    folders = [ROOT / name for name in ("src", "tests", "benchmarks", "examples", "tools")]
    assert offences(python_files(*folders), definitions, DEFINITIONS) == []


def test_tasks_have_the_standard_names():
    files = [path for path in python_files(SOURCE / "tasks") if path.stem in {"task", "batches", "scores"}]
    assert offences(files, definitions, TASK_DEFINITIONS) == []


def test_modules_have_the_standard_names():
    assert [str(path) for path in python_files(SOURCE) if path.stem in MODULES] == []


def test_a_banned_name_is_found(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("class Standing:\n    width: int\n    def __init__(self, heads): ...\n")
    assert len(offences([path], definitions, DEFINITIONS)) == 1
    assert len(offences([path], all_class_fields, SETTINGS_FIELDS)) == 1
    assert len(offences([path], constructor_parameters, CONSTRUCTOR_PARAMETERS)) == 1
