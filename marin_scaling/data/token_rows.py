"""Write the rows of a corpus of one's own text: the held-out ones first, so that training text that repeats them is found.

Every byte that is written is counted and part of a digest. Where the text comes from is in `token_documents`, where the rows go
in `kept_text`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from marin_scaling.data.token_corpus import RowFacts, Tokens, corpus_digest, row_path, write_manifest
from marin_scaling.data.token_documents import TokenDocument, token_documents
from marin_scaling.data.tokenizer import Tokenizer
from marin_scaling.errors import DataError

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder_file import Data, Texts

_LAST_SPACE = 0x3000  # of Unicode's
_AROUND_TEXT = "".join(filter(str.isspace, map(chr, range(_LAST_SPACE + 1)))) + "\ufeff"
"""White space, and the mark of byte order, which some editors put before a text."""


def write_rows(data: Data, tokenizer: Tokenizer, folder: Path, *, on_row: Callable[[str], None]) -> str:
    """Write rows and manifest of a corpus into `folder`; its digest. `on_row` is told each row before it is made."""
    assert data.train is not None
    facts, held_out = dict[str, RowFacts](), dict[bytes, str]()
    for name, texts in data.validation.items():
        on_row(name)
        documents = token_documents(texts, tokenizer, text_key=data.text_key)
        row = _write_row(_remembered(documents, held_out, tokenizer, name), texts, tokenizer, row_path(folder, name))
        _require_other_text(name, row, than=facts)
        facts[name] = row
    on_row("train")
    documents = token_documents(data.train, tokenizer, text_key=data.text_key)
    left = _without(documents, held_out, tokenizer, leave_out=data.overlap == "leave-out")
    facts["train"] = _write_row(left, data.train, tokenizer, row_path(folder, "train"))
    digest = corpus_digest({name: known.sha256 for name, known in facts.items()}, tokenizer.identity)
    write_manifest(
        folder,
        source=data.source,
        tokenizer=tokenizer.identity,
        token_bytes=tokenizer.token_bytes,
        rows=facts,
        digest=digest,
    )
    return digest


def _require_other_text(name: str, row: RowFacts, *, than: dict[str, RowFacts]) -> None:
    for other, known in than.items():
        if known.sha256 == row.sha256:
            raise DataError(
                f"data.validation: {other} and {name} hold the same text.",
                why="The mean over sets would count it twice.",
                fix=f"Correct the files of one of them, or take {name} out.",
            )


@dataclass
class _Row:
    """A row of tokens as it is written."""

    stream: BinaryIO
    separator: int | None
    tokenizer: Tokenizer
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
        self.text_bytes += int(self.tokenizer.token_bytes[ended].sum(dtype=np.int64))


def _write_row(documents: Iterable[TokenDocument], texts: Texts, tokenizer: Tokenizer, path: Path) -> RowFacts:
    separator = tokenizer.separator if texts.cache is None else None  # a cache has its own
    with open(path, "wb") as stream:
        row = _Row(stream, separator, tokenizer)
        for document in documents:
            row.add(document.tokens)
        stream.flush()
        os.fsync(stream.fileno())
    if not row.text_bytes:
        raise DataError(
            f"{texts.said}: there is no text in it.", why="Nothing can be trained or measured on it.", fix="Correct data."
        )
    return RowFacts(tokens=row.tokens, text_bytes=row.text_bytes, sha256=row.sha256.hexdigest())


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
    """`documents` without those that are held out too; where they are not to be left out, a `DataError` at the first."""
    for document in documents:
        twin = next((held_out[key] for key in _keys(document, tokenizer) if key in held_out), None)
        if twin is None:
            yield document
        elif not leave_out:
            raise DataError(
                f"{document.where}: this document is held out, too ({twin}).",
                why="A loss on text that was trained on says nothing of the loss on new text.",
                fix="Take it out of one of them, or let such documents be left out of training: data.overlap: leave-out.",
            )


def _keys(document: TokenDocument, tokenizer: Tokenizer) -> list[bytes]:
    """Digests of what makes two documents one: their text without white space around it, or their tokens.

    The text finds those that differ in a blank at the end, which changes the tokens; the tokens find those whose text the
    tokenizer changes, of which a cache gives back the changed one. What is empty has no digest.
    """
    text = document.text.strip(_AROUND_TEXT).encode(errors="surrogatepass")
    return [
        hashlib.blake2b(each, digest_size=16, person=kind).digest()
        for kind, each in ((b"text", text), (b"tokens", _own(document.tokens, tokenizer)))
        if each
    ]


def _own(tokens: Tokens, tokenizer: Tokenizer) -> bytes:
    """A document's tokens without those around it that stand for no text."""
    text = np.flatnonzero(tokenizer.token_bytes[tokens])
    own = tokens[text[0] : text[-1] + 1] if text.size else tokens[:0]
    return np.asarray(own, "<u4").tobytes()
