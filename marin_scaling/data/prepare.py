"""The corpus that a ladder file names: the standard library's, or text of one's own, tokenized once and kept.

Only what text of one's own needs is in the extra `train`; it is imported when it is asked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from marin_scaling.data.standard_library import standard_library_corpus
from marin_scaling.data.token_corpus import TokenCorpus
from marin_scaling.data.tokenizer import Tokenizer, load_tokenizer
from marin_scaling.errors import missing_extra

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder_file import Data


def prepare(
    data: Data, *, work_root: Path, tokenizer: Tokenizer | None = None, on_row: Callable[[str], None] = lambda _name: None
) -> TokenCorpus:
    """The corpus, made if it is not kept yet; `on_row` is told each row of tokens before it is made.

    `tokenizer` is the one that `data` names, if it is loaded already. `DataError` where text cannot be read, changes while it
    is read, or does not fit the tokenizer, and where training text repeats held-out documents.
    """
    if data.train is None:
        return standard_library_corpus()
    _require_readers()
    from marin_scaling.data.kept_text import kept_or_made

    return kept_or_made(data, tokenizer or load_tokenizer(data.tokenizer), work_root=work_root, on_row=on_row)


def prepared(data: Data, *, work_root: Path) -> TokenCorpus | None:
    """The corpus if it is kept already and its files have not changed since, else None; nothing is tokenized."""
    if data.train is None:
        return standard_library_corpus()
    _require_readers()
    from marin_scaling.data.kept_text import kept

    return kept(data, load_tokenizer(data.tokenizer), work_root=work_root)


def _require_readers() -> None:
    if importlib.util.find_spec("fsspec") is None:
        raise missing_extra("train", needed_for="text of your own")
