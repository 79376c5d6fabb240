import pytest

from structattn.runs.checkpoint import Identity
from structattn.runs.folder import RunFolder, begin_run, check_same_data, check_same_settings, settings_digest
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, StructattnError

SETTINGS = {"task": "formal_language", "data": "prepared"}


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_a_run_holds_settings_that_can_be_fed_back(folder):
    settings = resolve_settings(SETTINGS, ["model.layers=1.superposition-3"])
    begin_run(folder, settings, {"data": {"digest": "d"}})
    assert folder.holds_a_run()
    check_same_settings(folder, settings)


def test_each_changed_field_is_named_with_both_values(folder):
    begin_run(folder, resolve_settings(SETTINGS), {})
    changed = resolve_settings(SETTINGS, ["training.optimizer.learning_rate=0.5", "model.layers=5.superposition-3"])
    with pytest.raises(CheckpointError) as caught:
        check_same_settings(folder, changed)
    assert "training.optimizer.learning_rate was 0.001 and is now 0.5" in str(caught.value)
    assert "model.layers.5.stack_embedding_size was 'absent' and is now 3" in str(caught.value)
    assert "seed" not in str(caught.value)


def test_other_data_are_refused_with_both_digests(folder, tmp_path):
    begin_run(folder, resolve_settings(SETTINGS), {"data": {"digest": "old"}})
    check_same_data(folder, Identity("s", "old"), tmp_path)
    with pytest.raises(CheckpointError, match="its digest was old and is new"):
        check_same_data(folder, Identity("s", "new"), tmp_path)


def test_a_folder_with_other_things_in_it_is_refused(folder, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(StructattnError, match=r"expected a new or empty folder for the run, found 'thesis.tex'"):
        begin_run(folder, resolve_settings(SETTINGS), {})


def test_a_start_that_died_halfway_is_no_run(folder):
    folder.write_card({})
    (folder.path / ".settings.yaml.abc").touch()
    assert not folder.holds_a_run()
    begin_run(folder, resolve_settings(SETTINGS), {})


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000])
def test_a_broken_run_card_is_refused_by_name(folder, content):
    folder.card.write_bytes(content)
    with pytest.raises(StructattnError, match=r"run\.json: "):
        folder.read_card()


def test_the_digest_depends_on_all_that_training_does():
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
    # The data have a digest of their own, evaluation changes no run, and what is as it would be anyway says nothing.
    assert len(digests) == 4


def test_how_bleu_parts_words_is_told_where_it_selects():
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
