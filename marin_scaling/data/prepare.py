"""From the `data` of a ladder file to tokens on disk, once: read, tokenize, measure, check, keep.

Held-out text is read first, so that training text that repeats a held-out document is found as it is read. What is made is kept
under a digest of what was asked for and of the files' own fingerprints; the next command maps it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from marin_scaling.canonical_json import digest_of
from marin_scaling.claim import claim
from marin_scaling.data.documents import (
    Document,
    documents_in,
    files_at,
    fingerprint,
    folder_fingerprint,
    hub_documents,
    hub_fingerprint,
)
from marin_scaling.data.standard_library import standard_library_corpus
from marin_scaling.data.token_corpus import (
    RowFacts,
    TokenCorpus,
    Tokens,
    corpus_digest,
    data_folder,
    is_complete,
    map_corpus,
    row_path,
    token_type,
    write_manifest,
)
from marin_scaling.data.tokenizer import Tokenizer, load_tokenizer
from marin_scaling.durable_files import disk_errors, replace_file
from marin_scaling.errors import DataError, first_line, missing_extra

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder_file import Data, Texts

_FORMAT = 1  # of what is kept: another one is made anew
_BATCH = 256  # documents that are tokenized at once
_MOST_BYTES_OFF = 0.005  # of a text's bytes: what the tokens' own lengths may be off
_POLL_SECONDS = 1.0  # of a process that waits for another one to make what it wants
TokenDocument = tuple[str, Tokens]
"""Where a document stands, and its tokens."""


def prepare(
    data: Data, *, work_root: Path, tokenizer: Tokenizer | None = None, on_row: Callable[[str], None] = lambda _name: None
) -> TokenCorpus:
    """The corpus that a ladder file names, made if it is not kept yet; `on_row` is told each row before it is made.

    `tokenizer` is the one that `data` names, if it is loaded already. Of two processes that ask for one corpus at a time, one
    makes it and the other waits. `DataError` where text cannot be read, changes while it is read, or does not fit the
    tokenizer, and where training text repeats held-out documents.
    """
    if data.train is None:
        return standard_library_corpus()
    tokenizer = tokenizer or load_tokenizer(data.tokenizer)
    request = _request(data, tokenizer)
    root = work_root / "data"
    while True:
        with disk_errors(root, "written"), claim(root / "locks" / request) as is_ours:
            kept = _kept(data, tokenizer, request, work_root)
            if kept is not None:
                return kept
            if is_ours:
                making = root / f"being-made-{request}"
                return _made(data, tokenizer, request, making, work_root=work_root, on_row=on_row)
        time.sleep(_POLL_SECONDS)


def prepared(data: Data, *, work_root: Path) -> TokenCorpus | None:
    """The corpus if it is kept already and its files have not changed since, else None; nothing is tokenized."""
    if data.train is None:
        return standard_library_corpus()
    tokenizer = load_tokenizer(data.tokenizer)
    return _kept(data, tokenizer, _request(data, tokenizer), work_root)


def _kept(data: Data, tokenizer: Tokenizer, request: str, work_root: Path) -> TokenCorpus | None:
    path = _answer_path(request, work_root)
    if not path.exists():
        return None
    folder = data_folder(path.read_text("ascii", errors="replace").strip(), work_root=work_root)
    return _named(map_corpus(folder), data, tokenizer) if is_complete(folder) else None


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
    return [fingerprint(address) for address in _addresses(texts)]


def _addresses(texts: Texts) -> list[str]:
    found = [address for pattern in texts.files or () for address in files_at(pattern)]
    twice = [address for address, count in Counter(found).items() if count > 1]
    if twice:
        raise DataError(
            f"{twice[0]} is named twice in {texts.said}.", why="Its text would be seen twice.", fix="Name each file once."
        )
    return found


@dataclass
class _Row:
    """A row of tokens as it is written: its digest and its size."""

    stream: BinaryIO
    separator: int | None
    token_bytes: NDArray[np.uint16]
    sha256: Any = field(default_factory=hashlib.sha256)
    tokens: int = 0
    text_bytes: int = 0

    def add(self, tokens: Tokens) -> None:
        """A document, and what ends it."""
        ended = tokens if self.separator is None else np.append(tokens, tokens.dtype.type(self.separator))
        raw = ended.tobytes()
        self.sha256.update(raw)
        self.stream.write(raw)
        self.tokens += len(ended)
        self.text_bytes += int(self.token_bytes[ended].sum(dtype=np.int64))

    @property
    def facts(self) -> RowFacts:
        """What the manifest says of it."""
        return RowFacts(tokens=self.tokens, text_bytes=self.text_bytes, sha256=str(self.sha256.hexdigest()))


def _made(
    data: Data, tokenizer: Tokenizer, request: str, making: Path, *, work_root: Path, on_row: Callable[[str], None]
) -> TokenCorpus:
    """Make the corpus in the folder `making`, which is ours and may hold what an earlier attempt left, and give it its name."""
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        digest = _write_rows(data, tokenizer, making, on_row=on_row)
        if _request(data, tokenizer) != request:
            raise DataError(
                f"the text of {data.source} changed while it was read.",
                why="What was read is neither what was there nor what is there.",
                fix="Type the command again when nobody writes there.",
            )
        folder = data_folder(digest, work_root=work_root)
        if not is_complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    replace_file(_answer_path(request, work_root), digest.encode("ascii"))
    return _named(map_corpus(folder), data, tokenizer)


def _write_rows(data: Data, tokenizer: Tokenizer, folder: Path, *, on_row: Callable[[str], None]) -> str:
    assert data.train is not None
    rows, held_out = dict[str, _Row](), dict[bytes, str]()
    token_bytes = tokenizer.token_bytes()
    for name, texts in data.validation.items():
        on_row(name)
        documents = _token_documents(texts, tokenizer, data.text_key, token_bytes)
        rows[name] = _write_row(
            _remembered(documents, held_out, token_bytes, name), texts, tokenizer, token_bytes, folder, name
        )
    on_row("train")
    documents = _token_documents(data.train, tokenizer, data.text_key, token_bytes)
    left = _without(documents, held_out, token_bytes, leave_out=data.overlap == "leave-out")
    rows["train"] = _write_row(left, data.train, tokenizer, token_bytes, folder, "train")
    facts = {name: row.facts for name, row in rows.items()}
    digest = corpus_digest({name: known.sha256 for name, known in facts.items()}, tokenizer.identity)
    write_manifest(folder, source=data.source, tokenizer=tokenizer.identity, token_bytes=token_bytes, rows=facts, digest=digest)
    return digest


def _write_row(
    documents: Iterable[TokenDocument],
    texts: Texts,
    tokenizer: Tokenizer,
    token_bytes: NDArray[np.uint16],
    folder: Path,
    name: str,
) -> _Row:
    separator = tokenizer.separator if texts.cache is None else None  # a cache has its own
    with open(row_path(folder, name), "wb") as stream:
        row = _Row(stream, separator, token_bytes)
        for _where, tokens in documents:
            row.add(tokens)
        stream.flush()
        os.fsync(stream.fileno())
    if not row.text_bytes:
        raise DataError(
            f"{texts.said}: there is no text in it.", why="Nothing can be trained or measured on it.", fix="Correct data."
        )
    return row


def _token_documents(
    texts: Texts, tokenizer: Tokenizer, text_key: str, token_bytes: NDArray[np.uint16]
) -> Iterator[TokenDocument]:
    """Every document as tokens, whose own bytes are held against those of the text."""
    if texts.cache is not None:
        yield from _cached(texts.cache, size=tokenizer.identity.size, name=tokenizer.identity.name)
        return
    said = counted = 0
    documents = iter(_documents(texts, text_key))
    while batch := list(itertools.islice(documents, _BATCH)):
        for (where, text), tokens in zip(batch, _encoded(tokenizer, batch), strict=True):
            said, counted = said + len(text.encode()), counted + int(token_bytes[tokens].sum(dtype=np.int64))
            yield where, tokens
    if abs(counted - said) > _MOST_BYTES_OFF * said:
        raise DataError(
            f"{texts.said}: its text has {said} bytes, and the tokens that {tokenizer.identity.name} makes of it stand for "
            f"{counted}.",
            why="Bits per byte would be off by as much; the tokenizer drops or changes text.",
            fix="Take a tokenizer that gives its text back (byte-level, or with byte fallback).",
        )


def _encoded(tokenizer: Tokenizer, batch: list[Document]) -> list[Tokens]:
    for where, text in batch:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where}: half of a surrogate pair at character {error.start}.",
                why="It has no bytes in UTF-8.",
                fix="Correct the file.",
            ) from error
    return tokenizer.encode([text for _where, text in batch])


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


def _remembered(
    documents: Iterator[TokenDocument], held_out: dict[bytes, str], token_bytes: NDArray[np.uint16], name: str
) -> Iterator[TokenDocument]:
    for where, tokens in documents:
        key = _key(tokens, token_bytes)
        if key:
            held_out.setdefault(key, f"{name}: {where}")
        yield where, tokens


def _without(
    documents: Iterator[TokenDocument], held_out: dict[bytes, str], token_bytes: NDArray[np.uint16], *, leave_out: bool
) -> Iterator[TokenDocument]:
    """`documents` without those that are held out too; where they are not to be left out, a `DataError` at the first."""
    for where, tokens in documents:
        twin = held_out.get(_key(tokens, token_bytes))
        if twin is None:
            yield where, tokens
        elif not leave_out:
            raise DataError(
                f"{where}: this document is held out, too ({twin}).",
                why="A loss on text that was trained on says nothing of the loss on new text.",
                fix="Take it out of one of them, or let such documents be left out of training: data.overlap: leave-out.",
            )


def _key(tokens: Tokens, token_bytes: NDArray[np.uint16]) -> bytes:
    """A digest of a document's tokens, without those around it that stand for no text; empty for one without text."""
    text = np.flatnonzero(token_bytes[tokens])
    own = tokens[text[0] : text[-1] + 1] if text.size else tokens[:0]
    return hashlib.blake2b(np.asarray(own, "<u4").tobytes(), digest_size=16).digest() if own.size else b""
