"""From the `data` of a ladder file to tokens on disk, once: read, tokenize, measure, check, keep.

Held-out text is read first, so that training text that repeats a held-out document is found as it is read. What is made is kept
under a digest of what was asked for and of the files' own fingerprints; the next command maps it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from marin_scaling.canonical_json import digest_of, dump_canonical
from marin_scaling.data.documents import Document, documents_in, files_at, fingerprint, hub_documents, hub_fingerprint
from marin_scaling.data.standard_library import standard_library_corpus
from marin_scaling.data.token_corpus import (
    MANIFEST_NAME,
    TokenCorpus,
    Tokens,
    corpus_digest,
    data_folder,
    map_corpus,
    row_path,
    token_type,
    write_manifest,
)
from marin_scaling.data.tokenizer import Tokenizer, load_tokenizer
from marin_scaling.durable_files import disk_errors, read_bytes, replace_file
from marin_scaling.errors import DataError, first_line, missing_extra

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder_file import Data, Texts

_FORMAT = 1  # of what is kept: another one is made anew
_BATCH = 256  # documents that are tokenized at once
_MOST_BYTES_OFF = 0.005  # of a held-out set's bytes: what the tokens' own lengths may be off
TokenDocument = tuple[str, Tokens]
"""Where a document stands, and its tokens."""


def prepare(data: Data, *, work_root: Path, on_row: Callable[[str], None] = lambda _name: None) -> TokenCorpus:
    """The corpus that a ladder file names, made if it is not kept yet; `on_row` is told each row before it is made.

    `DataError` where text cannot be read, tokens do not fit the tokenizer, or training text repeats held-out documents.
    """
    if data.train is None:
        return standard_library_corpus()
    tokenizer = load_tokenizer(data.tokenizer)
    kept = prepared(data, work_root=work_root, tokenizer=tokenizer)
    return kept or _make(data, tokenizer, work_root=work_root, on_row=on_row)


def prepared(data: Data, *, work_root: Path, tokenizer: Tokenizer | None = None) -> TokenCorpus | None:
    """The corpus if it is kept already and its files have not changed since, else None; nothing is tokenized."""
    if data.train is None:
        return standard_library_corpus()
    path = _request_path(data, tokenizer or load_tokenizer(data.tokenizer), work_root)
    if not path.exists():
        return None
    folder = data_folder(json.loads(read_bytes(path))["digest"], work_root=work_root)
    return map_corpus(folder) if (folder / MANIFEST_NAME).exists() else None


def _request_path(data: Data, tokenizer: Tokenizer, work_root: Path) -> Path:
    assert data.train is not None
    parts = {"train": data.train, **data.validation}
    request = {
        "format": _FORMAT,
        "tokenizer": tokenizer.identity.digest,
        "data": data.model_dump(mode="json", exclude={"epochs"}),
        "files": {name: _fingerprints(texts) for name, texts in parts.items()},
    }
    return work_root / "data" / "prepared" / f"{digest_of(request)[:32]}.json"


def _fingerprints(texts: Texts) -> list[str]:
    if texts.cache is not None:
        return [fingerprint(ledger) for ledger in files_at(f"{texts.cache.rstrip('/')}/shard_ledger.json")]
    if texts.dataset is not None:
        return [hub_fingerprint(texts.dataset, config=texts.config, revision=texts.revision, split=texts.split)]
    return [f"{address} {fingerprint(address)}" for address in _addresses(texts)]


def _addresses(texts: Texts) -> list[str]:
    return [address for pattern in texts.files or () for address in files_at(pattern)]


@dataclass
class _Row:
    """A row of tokens as it is written: its digest, and the bytes of text that it stands for."""

    stream: BinaryIO
    separator: int | None
    token_bytes: NDArray[np.uint16]
    sha256: Any = field(default_factory=hashlib.sha256)
    text_bytes: int = 0

    def add(self, tokens: Tokens) -> None:
        """A document, and what ends it."""
        ended = tokens if self.separator is None else np.append(tokens, tokens.dtype.type(self.separator))
        raw = ended.tobytes()
        self.sha256.update(raw)
        self.stream.write(raw)
        self.text_bytes += int(self.token_bytes[ended].sum(dtype=np.int64))


def _make(data: Data, tokenizer: Tokenizer, *, work_root: Path, on_row: Callable[[str], None]) -> TokenCorpus:
    root = work_root / "data"
    with disk_errors(root, "written"):
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".being-made-", dir=root) as temporary:
            folder = Path(temporary)
            digest = _write_rows(data, tokenizer, folder, on_row=on_row)
            _keep(folder, data_folder(digest, work_root=work_root))
    replace_file(_request_path(data, tokenizer, work_root), dump_canonical({"digest": digest}))
    return map_corpus(data_folder(digest, work_root=work_root))


def _keep(made: Path, folder: Path) -> None:
    """Give what was made its name, unless another process did so first."""
    if not (folder / MANIFEST_NAME).exists():
        made.rename(folder)
        made.mkdir()  # the temporary folder's owner removes it


def _write_rows(data: Data, tokenizer: Tokenizer, folder: Path, *, on_row: Callable[[str], None]) -> str:
    assert data.train is not None
    rows, held_out = dict[str, _Row](), dict[bytes, str]()
    token_bytes = tokenizer.token_bytes()
    for name, texts in data.validation.items():
        on_row(name)
        documents = _remembered(_token_documents(texts, tokenizer, data.text_key, check=token_bytes), held_out, name)
        rows[name] = _write_row(documents, texts, tokenizer, token_bytes, row_path(folder, name))
    on_row("train")
    left = _without(_token_documents(data.train, tokenizer, data.text_key), held_out, leave_out=data.overlap == "leave-out")
    rows["train"] = _write_row(left, data.train, tokenizer, token_bytes, row_path(folder, "train"))
    digest = corpus_digest({name: str(row.sha256.hexdigest()) for name, row in rows.items()})
    write_manifest(
        folder,
        source=data.source,
        tokenizer=tokenizer.identity,
        token_bytes=token_bytes,
        text_bytes={name: row.text_bytes for name, row in rows.items()},
        digest=digest,
    )
    return digest


def _write_row(
    documents: Iterable[TokenDocument], texts: Texts, tokenizer: Tokenizer, token_bytes: NDArray[np.uint16], path: Path
) -> _Row:
    separator = tokenizer.separator if texts.cache is None else None  # a cache has its own
    with open(path, "wb") as stream:
        row = _Row(stream, separator, token_bytes)
        for _where, tokens in documents:
            row.add(tokens)
    if not row.text_bytes:
        raise DataError(
            f"{texts.said}: there is no text in it.", why="Nothing can be trained or measured on it.", fix="Correct data."
        )
    return row


def _token_documents(
    texts: Texts, tokenizer: Tokenizer, text_key: str, *, check: NDArray[np.uint16] | None = None
) -> Iterator[TokenDocument]:
    """Every document as tokens; with `check`, the tokens' own bytes are held against those of the text."""
    if texts.cache is not None:
        yield from _cached(texts.cache, size=tokenizer.identity.size, name=tokenizer.identity.name)
        return
    said = counted = 0
    documents = iter(_documents(texts, text_key))
    while batch := list(itertools.islice(documents, _BATCH)):
        for (where, text), tokens in zip(batch, _encoded(tokenizer, batch), strict=True):
            if check is not None:
                said, counted = said + len(text.encode()), counted + int(check[tokens].sum(dtype=np.int64))
            yield where, tokens
    if abs(counted - said) > _MOST_BYTES_OFF * said:
        raise DataError(
            f"{texts.said}: its text has {said} bytes, and the tokens that {tokenizer.identity.name} makes of it stand for "
            f"{counted}.",
            why="Bits per byte would be off by as much; the tokenizer drops or changes text.",
            fix="Take a tokenizer that gives its text back (byte-level, or with byte fallback).",
        )


def _encoded(tokenizer: Tokenizer, batch: list[Document]) -> list[Tokens]:
    try:
        return tokenizer.encode([text for _where, text in batch])
    except UnicodeEncodeError as error:
        where = next(where for where, text in batch if text == error.object)
        raise DataError(
            f"{where}: half of a surrogate pair at character {error.start}.",
            why="It has no bytes in UTF-8.",
            fix="Correct the file.",
        ) from error


def _documents(texts: Texts, text_key: str) -> Iterator[Document]:
    if texts.dataset is not None:
        return hub_documents(texts.dataset, config=texts.config, revision=texts.revision, split=texts.split, text_key=text_key)
    return itertools.chain.from_iterable(documents_in(address, text_key=text_key) for address in _addresses(texts))


def _cached(cache: str, *, size: int, name: str) -> Iterator[TokenDocument]:
    """The rows of a cache that Levanter built."""
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for=f"the Levanter cache {cache}")
    from levanter.store.cache import TreeCache

    try:
        store = TreeCache.load(cache, {"input_ids": np.zeros(0, np.int32)})
        count = len(store)
    except Exception as error:  # whatever tensorstore and the file systems raise
        raise DataError(
            f"{cache} is no cache that Levanter has finished: {first_line(error)}.",
            why="A cache holds tokens beside a ledger of its shards.",
            fix="Name the folder that holds shard_ledger.json, or build the cache again with Levanter.",
        ) from error
    for start in range(0, count, _BATCH):
        for number, row in enumerate(store.get_batch_sync(range(start, min(start + _BATCH, count))), start=start):
            tokens = np.asarray(row["input_ids"])
            if tokens.size and not 0 <= tokens.min() <= tokens.max() < size:
                raise DataError(
                    f"{cache}, row {number}: token {tokens.max()} is none of the {size} of the tokenizer {name}.",
                    why="The cache was built with another tokenizer; its bytes could not be counted.",
                    fix="Name the tokenizer that it was built with: data.tokenizer.",
                )
            yield f"{cache}, row {number}", tokens.astype(token_type(size))


def _remembered(documents: Iterator[TokenDocument], held_out: dict[bytes, str], name: str) -> Iterator[TokenDocument]:
    for where, tokens in documents:
        if tokens.size:
            held_out.setdefault(_key(tokens), f"{name}: {where}")
        yield where, tokens


def _without(documents: Iterator[TokenDocument], held_out: dict[bytes, str], *, leave_out: bool) -> Iterator[TokenDocument]:
    """`documents` without those that are held out too; where they are not to be left out, a `DataError` at the first."""
    for where, tokens in documents:
        twin = held_out.get(_key(tokens)) if tokens.size else None
        if twin is None:
            yield where, tokens
        elif not leave_out:
            raise DataError(
                f"{where}: this document is held out, too ({twin}).",
                why="A loss on text that was trained on says nothing of the loss on new text.",
                fix="Take it out of one of them, or let such documents be left out of training: data.overlap: leave-out.",
            )


def _key(tokens: Tokens) -> bytes:
    return hashlib.blake2b(np.asarray(tokens, "<u4").tobytes(), digest_size=16).digest()
