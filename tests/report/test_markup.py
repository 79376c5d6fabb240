"""Markup escapes exactly once."""

from structattn.report.page import Markup, joined, tag


def test_text_is_escaped_and_markup_is_not():
    assert tag("b", "<&>", tag("i", "x")) == "<b>&lt;&amp;&gt;<i>x</i></b>"
    assert joined("a<", Markup("<br>")) == "a&lt;<br>"


def test_attributes_are_escaped_and_named():
    assert tag("a", class_='"x"', aria_hidden="true") == '<a class="&quot;x&quot;" aria-hidden="true"></a>'
