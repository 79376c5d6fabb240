"""Lists of names in messages."""

from structattn.support.grouping import listed


def test_a_list_has_the_first_names_and_the_number_of_the_others():
    assert listed(["a", "b"]) == "a, b"
    assert listed("abcde") == "a, b, c, d, e"
    assert listed(range(7), 2) == "0, 1 and 5 more"
