"""Text in messages."""

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_control_characters(text: str) -> str:
    """Replace control characters, such as those of a file name, by escapes: a terminal would execute them.

    Line feeds are replaced as well, and so are characters that change the direction of text.
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
