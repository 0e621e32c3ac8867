"""Prepare a corpus: read, tokenize, split, cache and verify."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from marin_scaling.canonical_json import digest_of
from marin_scaling.data.corpus import (
    TRAIN,
    RowFacts,
    TokenCorpus,
    Tokens,
    corpus_digest,
    data_folder,
    find_corpus,
    map_corpus,
    row_path,
    write_manifest,
)
from marin_scaling.data.documents import (
    TokenDocument,
    addresses,
    files_at,
    fingerprint,
    folder_fingerprint,
    hub_fingerprint,
    standard_library_corpus,
    token_documents,
)
from marin_scaling.data.tokenizer import Tokenizer, load_tokenizer
from marin_scaling.errors import DataError, missing_extra
from marin_scaling.files import claim, disk_errors, replace_file
from marin_scaling.ladder.config import Data, Texts


def prepare(
    data: Data, *, work_root: Path, tokenizer: Tokenizer | None = None, on_row: Callable[[str], None] = lambda _name: None
) -> TokenCorpus:
    """Return the corpus, and make it unless it is cached; `on_row` gets the name of each row before it is made.

    `tokenizer` is that of `data`, if loaded already. `DataError` if text cannot be read, changes while it is read, does not
    fit the tokenizer, or if training text repeats held-out documents.
    """
    if not data.texts:
        return standard_library_corpus()
    _require_readers()

    return kept_or_made(
        data, tokenizer or load_tokenizer(data.tokenizer, end_token=data.end_token), work_root=work_root, on_row=on_row
    )


def prepared(data: Data, *, work_root: Path, tokenizer: Tokenizer | None = None) -> TokenCorpus | None:
    """Return the corpus if it is cached and its files are unchanged, else None."""
    if not data.texts:
        return standard_library_corpus()
    _require_readers()

    return kept(data, tokenizer or load_tokenizer(data.tokenizer, end_token=data.end_token), work_root=work_root)


def _require_readers() -> None:
    if importlib.util.find_spec("fsspec") is None:
        raise missing_extra("train", needed_for="text of your own")


_LAST_SPACE = 0x3000  # last white space of Unicode
_AROUND_TEXT = "".join(filter(str.isspace, map(chr, range(_LAST_SPACE + 1)))) + "\ufeff"
"""White space, and the byte order mark that some editors write."""


def write_rows(data: Data, tokenizer: Tokenizer, folder: Path, *, on_row: Callable[[str], None]) -> str:
    """Write rows and manifest of a corpus into `folder`; return its digest. `on_row` gets each row's name before it is made."""
    facts, held_out = dict[str, RowFacts](), dict[bytes, str]()
    share = data.held_out_share
    for name, texts in (data.validation or data.corpora or {HELD_OUT_PART: data.texts[TRAIN]}).items():
        on_row(name)
        documents = token_documents(texts, tokenizer, text_key=data.text_key, wanted=_within(share) if share else None)
        remembered = _remembered(documents, held_out, tokenizer, name)
        row = _write_row(remembered, texts, tokenizer, row_path(folder, name), share=share)
        _require_other_text(name, row, than=facts)
        facts[name] = row
    parts = dict[str, RowFacts]()
    for name, texts in data.texts.items():
        on_row(f"{TRAIN}: {name}" if data.corpora else TRAIN)
        documents = token_documents(texts, tokenizer, text_key=data.text_key)
        left = _without(documents, held_out, tokenizer, leave_out=share > 0 or data.overlap == "leave-out")
        parts[name] = _write_row(left, texts, tokenizer, row_path(folder, TRAIN))
    facts[TRAIN], parts = (_together(parts.values(), row_path(folder, TRAIN)), parts) if data.corpora else (parts[TRAIN], {})
    digest = corpus_digest(
        {name: known.sha256 for name, known in facts.items()},
        tokenizer.identity,
        parts={name: known.sha256 for name, known in parts.items()},
    )
    write_manifest(
        folder,
        source=data.source,
        tokenizer=tokenizer.identity,
        token_bytes=tokenizer.token_bytes,
        rows=facts,
        parts=parts,
        digest=digest,
    )
    return digest


HELD_OUT_PART = "held-out"
"""Name of the part of the training documents that is held out where a ladder file names no held-out text."""


def _within(share: float) -> Callable[[str], bool]:
    """Return the test of whether a document is among the `share` that is held out: a matter of its text alone."""
    most = int(share * 2**64)
    return lambda text: int.from_bytes(hashlib.blake2b(_stripped(text), digest_size=8, person=b"held out").digest()) < most


def _stripped(text: str) -> bytes:
    return text.strip(_AROUND_TEXT).encode(errors="surrogatepass")


def _require_other_text(name: str, row: RowFacts, *, than: dict[str, RowFacts]) -> None:
    for other, known in than.items():
        if known.sha256 == row.sha256:
            raise DataError(
                f"data.validation: {other} and {name} hold the same text.",
                why="The mean over sets would count it twice.",
                fix=f"Fix the files of one of them, or remove {name}.",
            )


@dataclass
class _Row:
    """A row of tokens while it is written."""

    stream: BinaryIO
    separator: int | None
    tokenizer: Tokenizer
    sha256: Any = field(default_factory=hashlib.sha256)
    tokens: int = 0
    text_bytes: int = 0

    def add(self, tokens: Tokens) -> None:
        """Write a document and its separator."""
        ended = tokens if self.separator is None else np.append(tokens, tokens.dtype.type(self.separator))
        raw = ended.tobytes()
        self.sha256.update(raw)
        self.stream.write(raw)
        self.tokens += len(ended)
        self.text_bytes += int(self.tokenizer.token_bytes[ended].sum(dtype=np.int64))


def _write_row(
    documents: Iterable[TokenDocument], texts: Texts, tokenizer: Tokenizer, path: Path, *, share: float = 0.0
) -> RowFacts:
    """Write documents as a row, behind those that the file has already; `share` is that of the held-out ones among all."""
    separator = tokenizer.separator if texts.cache is None else None  # a cache includes separators
    with open(path, "ab") as stream:
        row = _Row(stream, separator, tokenizer)
        for document in documents:
            row.add(document.tokens)
        stream.flush()
        os.fsync(stream.fileno())
    if not row.text_bytes:
        few = f"{texts.location} has no documents, or none of these is among the {share:.1%} that are held out."
        raise DataError(
            few if share else f"{texts.location} holds no text.",
            fix="Correct the section data; of few documents hold out more (data.held_out: 0.1), or name data.validation.",
        )
    return RowFacts(tokens=row.tokens, text_bytes=row.text_bytes, sha256=row.sha256.hexdigest())


def _together(parts: Iterable[RowFacts], path: Path) -> RowFacts:
    """Return the facts of the row in a file, which has these parts."""
    found = list(parts)
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return RowFacts(tokens=sum(part.tokens for part in found), text_bytes=sum(part.text_bytes for part in found), sha256=digest)


def _remembered(
    documents: Iterator[TokenDocument], held_out: dict[bytes, str], tokenizer: Tokenizer, name: str
) -> Iterator[TokenDocument]:
    for document in documents:
        for key in _keys(document, tokenizer):
            held_out.setdefault(key, f"{name}: {document.where}")
        yield document


def _without(
    documents: Iterator[TokenDocument], held_out: dict[bytes, str], tokenizer: Tokenizer, *, leave_out: bool
) -> Iterator[TokenDocument]:
    """Yield `documents` without held-out ones if `leave_out`, else raise `DataError` at the first of these."""
    for document in documents:
        twin = next((held_out[key] for key in _keys(document, tokenizer) if key in held_out), None)
        if twin is None:
            yield document
        elif not leave_out:
            raise DataError(
                f"{document.where}: this training document is held out too ({twin}).",
                why="The loss on training text is not that on new text.",
                fix="Remove it from one of them, or skip such documents in training: data.overlap: leave-out.",
            )


def _keys(document: TokenDocument, tokenizer: Tokenizer) -> list[bytes]:
    """Return digests that identify a document: of its text without surrounding white space, and of its tokens.

    The text identifies documents that differ in trailing white space, which changes the tokens. The tokens identify those
    whose text the tokenizer changes, since a cache holds the changed text. Empty values have no digest.
    """
    text = _stripped(document.text)
    return [
        hashlib.blake2b(each, digest_size=16, person=kind).digest()
        for kind, each in ((b"text", text), (b"tokens", _own(document.tokens, tokenizer)))
        if each
    ]


def _own(tokens: Tokens, tokenizer: Tokenizer) -> bytes:
    """Return a document's tokens without surrounding tokens that encode no text."""
    text = np.flatnonzero(tokenizer.token_bytes[tokens])
    own = tokens[text[0] : text[-1] + 1] if text.size else tokens[:0]
    return np.asarray(own, "<u4").tobytes()


_FORMAT = 2  # version of cached corpora and their checks; a corpus of another version is made again
_POLL_SECONDS = 1.0  # while another process makes the same corpus


def kept_or_made(data: Data, tokenizer: Tokenizer, *, work_root: Path, on_row: Callable[[str], None]) -> TokenCorpus:
    """Return the corpus of `data`, and make it unless it is cached; errors as in `prepare`."""
    request, root = _request(data, tokenizer), work_root / "data"
    while True:
        with disk_errors(root, "written"), claim(root / "locks" / request) as is_ours:
            if (kept := _answer(data, tokenizer, request, work_root)) is not None:
                return kept
            if is_ours:
                return _made(data, tokenizer, request, work_root=work_root, on_row=on_row)
        time.sleep(_POLL_SECONDS)


def kept(data: Data, tokenizer: Tokenizer, *, work_root: Path) -> TokenCorpus | None:
    """Return the corpus of `data` if it is cached and no file has changed since, else None."""
    return _answer(data, tokenizer, _request(data, tokenizer), work_root)


def _answer(data: Data, tokenizer: Tokenizer, request: str, work_root: Path) -> TokenCorpus | None:
    path = _answer_path(request, work_root)
    digest = path.read_text("ascii", errors="replace").strip() if path.exists() else ""
    found = find_corpus(data_folder(digest, work_root=work_root)) if digest else None
    return None if found is None else _named(found, data, tokenizer)


def _named(corpus: TokenCorpus, data: Data, tokenizer: Tokenizer) -> TokenCorpus:
    """Return the corpus with the names in this ladder file; another file may have made it from the same tokens."""
    return replace(corpus, source=data.source, tokenizer=tokenizer.identity)


def _answer_path(request: str, work_root: Path) -> Path:
    """Return the path of the file that holds the digest of a request's corpus."""
    return work_root / "data" / "prepared" / request


def _request(data: Data, tokenizer: Tokenizer) -> str:
    """Return a digest of the data section, tokenizer and files; it changes with any file."""
    request = {
        "format": _FORMAT,
        "tokenizer": tokenizer.identity.digest,
        "data": data.model_dump(mode="json", exclude={"epochs", "order", "source", "tokenizer", "mix", "phases", "horizon"}),
        "files": _all_fingerprints({**data.texts, **data.validation}),
    }
    return digest_of(request)[:32]


def _all_fingerprints(parts: Mapping[str, Texts]) -> dict[str, list[str]]:
    """Return the fingerprints of each text; `DataError` with all texts that cannot be read."""
    found, faults = dict[str, list[str]](), list[DataError]()
    for name, texts in parts.items():
        try:
            found[name] = _fingerprints(texts)
        except DataError as error:
            faults.append(error)
    if faults:
        raise DataError(tuple(line for each in faults for line in each.lines), why=faults[0].why, fix=faults[0].fix)
    return found


def _fingerprints(texts: Texts) -> list[str]:
    if texts.cache is not None:
        return [folder_fingerprint(texts.cache) for _ in files_at(f"{texts.cache.rstrip('/')}/shard_ledger.json")]
    if texts.dataset is not None:
        return [hub_fingerprint(texts.dataset, revision=texts.revision)]
    return [fingerprint(address) for address in addresses(texts)]


def _made(data: Data, tokenizer: Tokenizer, request: str, *, work_root: Path, on_row: Callable[[str], None]) -> TokenCorpus:
    """Make the corpus in a temporary folder, emptied of earlier attempts, then rename it to its digest."""
    making = work_root / "data" / f"being-made-{request}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        digest = write_rows(data, tokenizer, making, on_row=on_row)
        if _request(data, tokenizer) != request:
            raise DataError(
                f"the text of {data.source} changed while it was read.",
                fix="Rerun the command when no other program writes to it.",
            )
        folder = data_folder(digest, work_root=work_root)
        if find_corpus(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    replace_file(_answer_path(request, work_root), digest.encode("ascii"))
    return _named(map_corpus(folder), data, tokenizer)
