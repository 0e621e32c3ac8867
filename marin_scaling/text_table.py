"""Tables and paragraphs of reports as text of at most 80 columns."""

from __future__ import annotations

import io
import math
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

TABLE_WIDTH = 80


def wrapped(text: str, indent: str = "") -> str:
    """Wrap a paragraph with a hanging indent of two, without breaking words or hyphens.

    >>> wrapped("status: Usable", "  ")
    '  status: Usable'
    """
    return textwrap.fill(
        text,
        width=TABLE_WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def table_text(frame: pd.DataFrame, *, width: int = TABLE_WIDTH, indent: int = 2) -> str:
    """Format a table with a header; numbers align right, and long words wrap within `width` columns.

    Floats have five significant digits; NaN and None are empty cells.

    >>> import pandas as pd
    >>> print(table_text(pd.DataFrame({"law": ["E", "gamma"], "estimate": [1.70001, 0.1]}), indent=0))
    law    estimate
    E           1.7
    gamma       0.1
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for name in frame.columns:
        is_text = frame[name].map(lambda cell: isinstance(cell, str) and not _is_number(cell)).any()
        table.add_column(Text(str(name)), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in frame.itertuples(index=False, name=None):
        table.add_row(*(Text(_cell(cell)) for cell in row))
    buffer = io.StringIO()
    Console(file=buffer, width=width, color_system=None, legacy_windows=False).print(Padding(table, (0, 0, 0, indent)))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _cell(cell: Any) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return f"{cell:.5g}" if isinstance(cell, float) else str(cell)


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or (cell[0] in "+-[" and cell[1:2].isdigit())
