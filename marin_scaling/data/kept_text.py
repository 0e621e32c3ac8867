"""Corpora of one's own text as they are kept: found again while nothing has changed, made once where they are not there yet.

A corpus answers a request: what the ladder file asks for and the fingerprints of the files, by a digest. Of two processes that
ask for one at a time, one makes it and the other waits.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from marin_scaling.canonical_json import digest_of
from marin_scaling.claim import claim
from marin_scaling.data.documents import files_at, fingerprint, folder_fingerprint, hub_fingerprint
from marin_scaling.data.token_corpus import TokenCorpus, data_folder, find_corpus, map_corpus
from marin_scaling.data.token_documents import addresses
from marin_scaling.data.token_rows import write_rows
from marin_scaling.data.tokenizer import Tokenizer
from marin_scaling.durable_files import disk_errors, replace_file
from marin_scaling.errors import DataError

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder_file import Data, Texts

_FORMAT = 2  # of what is kept, and of what it was checked for: another one is made anew
_POLL_SECONDS = 1.0  # of a process that waits for another one to make what it wants


def kept_or_made(data: Data, tokenizer: Tokenizer, *, work_root: Path, on_row: Callable[[str], None]) -> TokenCorpus:
    """The corpus of `data`, made if it is not kept; errors as in `prepare`."""
    request, root = _request(data, tokenizer), work_root / "data"
    while True:
        with disk_errors(root, "written"), claim(root / "locks" / request) as is_ours:
            if (kept := _answer(data, tokenizer, request, work_root)) is not None:
                return kept
            if is_ours:
                return _made(data, tokenizer, request, work_root=work_root, on_row=on_row)
        time.sleep(_POLL_SECONDS)


def kept(data: Data, tokenizer: Tokenizer, *, work_root: Path) -> TokenCorpus | None:
    """The corpus of `data` if it is kept and no file has changed since, else None."""
    return _answer(data, tokenizer, _request(data, tokenizer), work_root)


def _answer(data: Data, tokenizer: Tokenizer, request: str, work_root: Path) -> TokenCorpus | None:
    path = _answer_path(request, work_root)
    digest = path.read_text("ascii", errors="replace").strip() if path.exists() else ""
    found = find_corpus(data_folder(digest, work_root=work_root)) if digest else None
    return None if found is None else _named(found, data, tokenizer)


def _named(corpus: TokenCorpus, data: Data, tokenizer: Tokenizer) -> TokenCorpus:
    """With the names of this ladder file: another one may have made the corpus from the same tokens."""
    return replace(corpus, source=data.source, tokenizer=tokenizer.identity)


def _answer_path(request: str, work_root: Path) -> Path:
    """The file that holds the digest of the corpus that answers a request."""
    return work_root / "data" / "prepared" / request


def _request(data: Data, tokenizer: Tokenizer) -> str:
    """What is asked for and what lies there, by a digest: another one as soon as a file changes."""
    assert data.train is not None
    parts = {"train": data.train, **data.validation}
    request = {
        "format": _FORMAT,
        "tokenizer": tokenizer.identity.digest,
        "data": data.model_dump(mode="json", exclude={"epochs", "source", "tokenizer"}),
        "files": {name: _fingerprints(texts) for name, texts in parts.items()},
    }
    return digest_of(request)[:32]


def _fingerprints(texts: Texts) -> list[str]:
    if texts.cache is not None:
        return [folder_fingerprint(texts.cache) for _ in files_at(f"{texts.cache.rstrip('/')}/shard_ledger.json")]
    if texts.dataset is not None:
        return [hub_fingerprint(texts.dataset, revision=texts.revision)]
    return [fingerprint(address) for address in addresses(texts)]


def _made(data: Data, tokenizer: Tokenizer, request: str, *, work_root: Path, on_row: Callable[[str], None]) -> TokenCorpus:
    """Make the corpus in a folder that is ours, and may hold what an earlier attempt left, and give it its name."""
    making = work_root / "data" / f"being-made-{request}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        digest = write_rows(data, tokenizer, making, on_row=on_row)
        if _request(data, tokenizer) != request:
            raise DataError(
                f"the text of {data.source} changed while it was read.",
                why="What was read is neither what was there nor what is there.",
                fix="Type the command again when nobody writes there.",
            )
        folder = data_folder(digest, work_root=work_root)
        if find_corpus(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    replace_file(_answer_path(request, work_root), digest.encode("ascii"))
    return _named(map_corpus(folder), data, tokenizer)
