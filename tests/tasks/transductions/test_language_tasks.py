"""Formal languages as transductions."""

import numpy as np
import pytest

from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.tasks.transductions.registry import COMPLETABLE, transduction


@pytest.mark.parametrize("name", FORMAL_LANGUAGES)
@pytest.mark.parametrize("edits", [1, 3])
def test_labels_are_correct_and_both_occur(name, edits):
    task, language = transduction(f"recognise:{name}:{edits}"), formal_language(name)
    length = task.valid_lengths(12, 20)[0]
    x, y = task.sample(length, 60, numpy_generator(1, name, edits))
    inside = language.log_probabilities(list(x)) > -np.inf
    assert [task.outputs[i] for i in y[:, 0]] == ["yes" if member else "no" for member in inside]
    assert 15 <= inside.sum() <= 45


def test_negatives_have_the_requested_edit_distance():
    task = transduction("recognise:marked-copy:2")
    x, y = task.sample(9, 200, numpy_generator(2))
    negatives = x[y[:, 0] == 0]
    assert len(negatives) > 50
    for string in negatives:
        best = min(
            (np.concatenate([w, [2], w]) != string).sum() for w in np.array(np.meshgrid(*[[0, 1]] * 4)).reshape(4, -1).T
        )
        assert 1 <= best <= 2


@pytest.mark.parametrize("name", COMPLETABLE)
def test_the_remainder_completes_the_string(name):
    task, language = transduction(f"complete:{name}"), formal_language(name)
    for length in (1, 2, 7):
        x, y = task.sample(length, 20, numpy_generator(3, name))
        assert x.shape == (20, length)
        whole = np.concatenate([x, y], axis=1)
        assert (language.log_probabilities(list(whole)) > -np.inf).all()
        answers = {}
        for row in whole:
            assert answers.setdefault(tuple(row[:length]), tuple(row[length:])) == tuple(row[length:])


def test_lengths_without_strings_are_skipped():
    assert transduction("recognise:marked-copy:1").valid_lengths(1, 6) == [1, 3, 5]
    with pytest.raises(ValueError, match="recognise:marked-copy:1: 1 strings of length 4"):
        transduction("recognise:marked-copy:1").sample(4, 1, numpy_generator(1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recognise:dyck", "is unknown; expected one of reverse-string.*recognise:LANGUAGE:EDITS"),
        ("recognise:dyck:0", "at edit distance 0; expected at least 1"),
        ("recognise:dick:1", "'dick' is unknown"),
        ("recognise:my.cfg:1", r"'my\.cfg' is unknown; expected one of marked-reversal"),
        pytest.param("recognise:dyck:" + 5000 * "9", "'recognise:dyck:9+' is unknown", id="many digits"),
        ("complete:dyck", "dyck is not determined by the first word"),
    ],
)
def test_invalid_names_of_language_tasks_are_rejected(name, message):
    with pytest.raises(UsageError, match=message):
        transduction(name)


def test_strings_are_at_least_as_long_as_they_have_edits():
    assert transduction("recognise:dyck:3").valid_lengths(1, 8) == [4, 6, 8]
    with pytest.raises(ValueError, match="length 3; expected a possible length"):
        transduction("recognise:marked-copy:5").sample(3, 20, numpy_generator(1))
    with pytest.raises(UsageError, match="use greater lengths or fewer edits"):
        transduction("recognise:unmarked-reversal:2").sample(2, 20, numpy_generator(1))  # both changed, it is one again
