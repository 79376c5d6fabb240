import pytest
import torch

from structattn.runs.checkpoint import Identity
from structattn.runs.folder import RunFolder, begin_run, check_same_data, check_same_settings, settings_digest
from structattn.runs.metadata import run_card
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, StructattnError

SETTINGS = {"task": "formal_language", "data": "prepared"}


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_stored_settings_can_be_loaded_again(folder):
    settings = resolve_settings(SETTINGS, ["model.layers=1.superposition-3"])
    begin_run(folder, settings, {"data": {"digest": "d"}})
    assert folder.has_run()
    check_same_settings(folder, settings)


def test_changed_settings_are_listed_with_both_values(folder):
    begin_run(folder, resolve_settings(SETTINGS), {})
    changed = resolve_settings(SETTINGS, ["training.optimizer.learning_rate=0.5", "model.layers=5.superposition-3"])
    with pytest.raises(CheckpointError) as caught:
        check_same_settings(folder, changed)
    assert "training.optimizer.learning_rate was 0.001 and is now 0.5" in str(caught.value)
    assert "model.layers.5.stack_embedding_size was 'absent' and is now 3" in str(caught.value)
    assert "seed" not in str(caught.value)


def test_changed_data_are_rejected_with_both_digests(folder, tmp_path):
    card = run_card(resolve_settings(SETTINGS), "stream", 5, Identity("s", "old"), 1, torch.device("cpu"))
    begin_run(folder, resolve_settings(SETTINGS), card)
    check_same_data(folder, Identity("s", "old"), tmp_path)
    with pytest.raises(CheckpointError, match="digest was old and is now new"):
        check_same_data(folder, Identity("s", "new"), tmp_path)


def test_folder_with_other_files_is_rejected(folder, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StructattnError, match=r"expected a new or empty folder for the run; found 'thesis.tex'"):
        begin_run(folder, resolve_settings(SETTINGS), {})
    file = RunFolder(tmp_path / "thesis.tex")
    with pytest.raises(StructattnError, match=r"thesis.tex: is a file; expected a new or empty folder for the run"):
        begin_run(file, resolve_settings(SETTINGS), {})


def test_aborted_start_does_not_count_as_a_run(folder):
    folder.write_card({})
    (folder.path / ".settings.yaml.0123abcd").touch()
    assert not folder.has_run()
    begin_run(folder, resolve_settings(SETTINGS), {})


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000])
def test_error_for_an_invalid_run_card_names_the_file(folder, content):
    folder.card.write_bytes(content)
    with pytest.raises(StructattnError, match=r"run\.json: "):
        folder.read_card()


def test_settings_digest_covers_training_but_not_data_path_or_evaluation():
    digests = {
        settings_digest(resolve_settings(SETTINGS, changes))
        for changes in (
            [],
            ["seed=2"],
            ["model.dropout=0.2"],
            ["training.num_threads=1"],
            ["data=elsewhere"],
            ["evaluation.beam_size=7"],
            ["training.gradient_accumulation_steps=1"],
        )
    }
    # The data path, evaluation settings and values equal to their defaults do not change the digest.
    assert len(digests) == 4


def test_settings_digest_includes_the_bleu_tokenizer_when_selecting_by_bleu():
    translation = {"task": "translation", "data": "data", "model": {"kind": "encoder_decoder"}}
    by_bleu = ["training.batches=pairs", "training.select_by=bleu"]
    digests = [
        settings_digest(resolve_settings(dict(translation), changes))
        for changes in (
            by_bleu,
            [*by_bleu, "evaluation.bleu_tokenizer=13a"],
            [*by_bleu, "evaluation.bleu_tokenizer=zh"],
        )
    ]
    assert digests[0] == digests[1] != digests[2]
