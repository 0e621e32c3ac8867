"""Lines for a reader, no wider than 100 columns: what all texts of this stage share."""

from __future__ import annotations

import textwrap

WIDTH = 100


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph; its further lines stand two columns in, and no word or hyphen is broken.

    >>> wrapped("status: Usable", "  ")
    '  status: Usable'
    """
    return textwrap.fill(
        text,
        width=WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
