"""Documents as tokens and text, with where each stands: text that is tokenized here, or rows of a cache that Levanter built.

That the tokens stand for all of the text is checked on the way. Writes nothing.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from marin_scaling.data.documents import Document, documents_in, files_at, hub_documents
from marin_scaling.data.token_corpus import Tokens, token_type
from marin_scaling.data.tokenizer import Tokenizer
from marin_scaling.errors import DataError, first_line, missing_extra

if TYPE_CHECKING:
    from marin_scaling.ladder.ladder_file import Texts

_BATCH = 256  # documents that are tokenized at once
_MOST_BYTES_OFF = 0.005  # of a text's bytes: what the tokens' own lengths may be off


@dataclass(frozen=True)
class TokenDocument:
    """Where a document stands, its tokens, and its text: as it was read, or of a row in a cache what its tokens decode to."""

    where: str
    tokens: Tokens
    text: str


def token_documents(texts: Texts, tokenizer: Tokenizer, *, text_key: str) -> Iterator[TokenDocument]:
    """Every document of `texts`; `DataError` where one cannot be read, or tokens do not stand for the bytes of the text."""
    if texts.cache is not None:
        yield from _cached(texts.cache, tokenizer)
        return
    said = counted = 0
    documents = iter(_documents(texts, text_key))
    while batch := list(itertools.islice(documents, _BATCH)):
        said += sum(_bytes_of(where, text) for where, text in batch)
        for (where, text), tokens in zip(batch, tokenizer.encode([text for _where, text in batch]), strict=True):
            counted += int(tokenizer.token_bytes[tokens].sum(dtype=np.int64))
            yield TokenDocument(where, tokens, text)
    if abs(counted - said) > _MOST_BYTES_OFF * said:
        raise DataError(
            f"{texts.said}: its text has {said} bytes, and the tokens that {tokenizer.identity.name} makes of it stand for "
            f"{counted}.",
            why="Bits per byte would be off by as much; the tokenizer drops or changes text.",
            fix="Take a tokenizer that gives its text back (byte-level, or with byte fallback).",
        )


def addresses(texts: Texts) -> list[str]:
    """Of the files that are named, each once."""
    found = [address for pattern in texts.files or () for address in files_at(pattern)]
    places = Counter(map(_place, found))
    if twice := next((address for address in reversed(found) if places[_place(address)] > 1), None):
        raise DataError(
            f"{twice} is named twice in {texts.said}.", why="Its text would be seen twice.", fix="Name each file once."
        )
    return found


def _place(address: str) -> str:
    """One name for all that a file on this machine can be called by."""
    return address if "://" in address else os.path.realpath(address)


def _bytes_of(where: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: half of a surrogate pair at character {error.start}.",
            why="It has no bytes in UTF-8.",
            fix="Correct the file.",
        ) from error


def _documents(texts: Texts, text_key: str) -> Iterator[Document]:
    if texts.dataset is not None:
        return hub_documents(texts.dataset, config=texts.config, revision=texts.revision, split=texts.split, text_key=text_key)
    return itertools.chain.from_iterable(documents_in(address, text_key=text_key) for address in addresses(texts))


def _cached(cache: str, tokenizer: Tokenizer) -> Iterator[TokenDocument]:
    """The rows of a cache that Levanter built."""
    name, size = tokenizer.identity.name, tokenizer.identity.size
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
        rows = list[Tokens]()
        for number, row in enumerate(store.get_batch_sync(range(start, min(start + _BATCH, count))), start=start):
            tokens = np.asarray(row["input_ids"])
            if tokens.size and not 0 <= tokens.min() <= tokens.max() < size:
                raise DataError(
                    f"{cache}, row {number}: token {tokens.max()} is none of the {size} of the tokenizer {name}.",
                    why="The cache was built with another tokenizer; its bytes could not be counted.",
                    fix="Name the tokenizer that it was built with: data.tokenizer.",
                )
            rows.append(tokens.astype(token_type(size)))
        for number, (tokens, text) in enumerate(zip(rows, tokenizer.decode(rows), strict=True), start=start):
            yield TokenDocument(f"{cache}, row {number}", tokens, text)
