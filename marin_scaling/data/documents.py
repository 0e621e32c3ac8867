"""Read documents, or token rows, from text, JSONL, Parquet, Levanter caches and the standard library's sources."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import itertools
import json
import os
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from marin_scaling.data.corpus import TokenCorpus, Tokens, byte_corpus, token_type
from marin_scaling.data.tokenizer import Tokenizer
from marin_scaling.errors import DataError, first_line, missing_extra
from marin_scaling.ladder.config import STANDARD_LIBRARY, Texts
from marin_scaling.printable import joined
from marin_scaling.untrusted_text import plain_address, plain_data_set, refuse_references

if TYPE_CHECKING:
    import fsspec


Document = tuple[str, str]
"""Place of a document, and its text."""

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_CHANGE_WITH_CONTENT = ("mtime", "etag", "last-modified", "lastmodified", "updated", "md5hash", "content-md5")


def files_at(address: str) -> list[str]:
    """Return the addresses of the files that match a pattern, sorted; `DataError` if there are none or they cannot be read.

    `hf://datasets/NAME/...` is a repository on the hub, `gs://` and `s3://` a bucket; other addresses are local.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(plain_address(address))
        if _is_file(system, path):
            return [address]
        found = sorted(system.glob(path)) if any(sign in path for sign in "*?[") else []
        is_folder = not found and system.isdir(path)
    except Exception as error:  # whatever the store's driver raises
        raise _unreadable(address, error) from error
    if not found:
        raise _without_files(address, is_folder=is_folder)
    return [_as_given(each, address, system) for each in found]


def _without_files(address: str, *, is_folder: bool) -> DataError:
    if is_folder:
        what, more = "it is a folder", f": name its files, such as {address.rstrip('/')}/**/*.txt"
    elif "://" in address:
        what, more = "there is no such file, or it cannot be reached", ""
    else:
        what, more = "there is no such file", "; paths are relative to the current folder"
    return DataError(
        f"{address}: {what}.",
        fix=f"Correct the section data{more}.",
    )


def _is_file(system: fsspec.AbstractFileSystem, path: str) -> bool:
    """Return True for a file; unlike fsspec's own function, raise if the store cannot be reached."""
    try:
        return bool(system.info(path)["type"] == "file")
    except FileNotFoundError:
        return False


def _as_given(path: str, address: str, system: fsspec.AbstractFileSystem) -> str:
    """Return a path in the form of `address`: with its protocol if given, relative if relative."""
    if "://" in address:
        return str(system.unstrip_protocol(path))
    return path if os.path.isabs(address) else os.path.relpath(path)


def fingerprint(address: str) -> str:
    """Return size and modification time (or tag) of the file at an address, without reading it."""
    import fsspec

    system, path = fsspec.core.url_to_fs(address)
    known = {key.lower(): value for key, value in system.info(path).items()}
    tags = [key for key in _CHANGE_WITH_CONTENT if key in known] or ["created"]
    return f"{address} " + " ".join(f"{key}={known.get(key)}" for key in ["size", *tags])


def folder_fingerprint(address: str) -> str:
    """Return a fingerprint of all files in a folder."""
    import fsspec

    system, path = fsspec.core.url_to_fs(address)
    return "\n".join(fingerprint(_as_given(each, address, system)) for each in sorted(system.find(path)))


def documents_in(address: str, *, text_key: str) -> Iterator[Document]:
    """Read the documents of one file by its suffix: lines of JSON, rows of Parquet, or a whole text file."""
    stem = address
    for ending in _COMPRESSED:
        stem = stem.removesuffix(ending)
    try:
        if stem.endswith((".jsonl", ".ndjson")):
            yield from _lines_of_json(address, text_key)
        elif address.endswith(".parquet"):
            yield from _rows_of_parquet(address, text_key)
        elif stem.endswith((".txt", ".md", ".py")):
            with _opened(address) as stream:
                yield address, _decoded(stream.read(), address, starts_file=True)
        else:
            raise DataError(
                f"{address}: unknown kind of file.",
                fix="Use JSON lines (.jsonl), Parquet (.parquet) or text (.txt, .md, .py), also compressed, with that suffix.",
            )
    except DataError:
        raise
    except Exception as error:  # whatever the store's driver, the unpacker and the reader of the format raise
        raise _unreadable(address, error) from error


def hub_documents(dataset: str, *, config: str | None, revision: str | None, split: str, text_key: str) -> Iterator[Document]:
    """Yield the documents of a split with the library `datasets`; `dataset` is a name on the hub, or a local folder."""
    rows = _hub_rows(dataset, config=config, revision=revision, split=split)
    for number, row in enumerate(rows):
        yield (where := f"{dataset}, {split}, row {number}"), _text(row, text_key, where)


def hub_fingerprint(dataset: str, *, revision: str | None) -> str:
    """Return a data set's commit on the hub, or a fingerprint of a folder's files, without reading rows."""
    if os.path.isdir(dataset):
        return folder_fingerprint(dataset)
    if importlib.util.find_spec("huggingface_hub") is None:
        raise missing_extra("train", needed_for=f"the data set {dataset}")
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(dataset, revision=revision).sha)
    except Exception as error:  # whatever the hub's client raises
        raise _unreadable(f"the data set {dataset}", error) from error


def _hub_rows(dataset: str, *, config: str | None, revision: str | None, split: str) -> Any:
    if importlib.util.find_spec("datasets") is None:
        raise missing_extra("train", needed_for=f"the data set {dataset}")
    import datasets

    datasets.disable_progress_bars()
    refuse_references()  # a data set's README can name files at any address
    try:
        return datasets.load_dataset(plain_data_set(dataset), config, split=split, revision=revision)
    except Exception as error:  # whatever the hub and its file systems raise
        raise _unreadable(f"the data set {dataset}", error) from error


def _lines_of_json(address: str, text_key: str) -> Iterator[Document]:
    with _opened(address) as stream:
        for number, line in enumerate(stream, start=1):
            where = f"{address}, line {number}"
            if not line.strip():
                continue
            try:
                row = json.loads(_decoded(line, where, starts_file=number == 1))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: it is not JSON: {first_line(error)}.", fix=_FIX) from error
            yield where, _text(row, text_key, where)


def _rows_of_parquet(address: str, text_key: str) -> Iterator[Document]:
    import fsspec

    with fsspec.open(address, "rb") as stream:
        file = parquet.ParquetFile(stream)
        column = text_key if text_key in file.schema_arrow.names else text_key.partition(".")[0]
        if column not in file.schema_arrow.names:
            raise DataError(f"{address}: it has no column {text_key!r}; it has {', '.join(file.schema_arrow.names)}.", fix=_FIX)
        number = 0
        for batch in file.iter_batches(columns=[column], batch_size=1024):
            for row in batch.to_pylist():
                yield (where := f"{address}, row {number}"), _text(row, text_key, where)
                number += 1


@contextlib.contextmanager
def _opened(address: str) -> Iterator[IO[bytes]]:
    """Open a file, decompressed; raise if a compressed file is truncated, which `zstandard` does not report."""
    import fsspec

    is_zstd = address.endswith(".zst")
    with fsspec.open(address, "rb", compression=None if is_zstd else "infer") as stream:
        yield io.BufferedReader(pa.CompressedInputStream(stream, "zstd")) if is_zstd else stream


def _decoded(raw: bytes, where: str, *, starts_file: bool) -> str:
    """Return the text of some bytes, without the mark of byte order that some editors put at the start of a file."""
    try:
        return raw.decode("utf-8-sig" if starts_file else "utf-8")
    except UnicodeDecodeError as error:
        is_wide = starts_file and raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        kind = "UTF-16" if is_wide else "not UTF-8"
        raise DataError(f"{where}: it is {kind} (byte {error.start}).", fix="Convert it (iconv).") from error


def _text(row: Any, text_key: str, where: str) -> str:
    """Return the text under a key, or under keys on the way to it (`message.content`)."""
    text = row
    for key in [text_key] if isinstance(row, Mapping) and text_key in row else text_key.split("."):
        if not isinstance(text, Mapping) or key not in text:
            has = f"; it has {joined(map(str, text), most=8)}" if isinstance(text, Mapping) else ""
            raise DataError(f"{where}: {text_key}: no such key{has}.", fix=_FIX)
        text = text[key]
    if not isinstance(text, str):
        raise DataError(f"{where}: {text_key}: {type(text).__name__}, not text.", fix=_FIX)
    return text


_FIX = "Fix the file, or name the key that holds the text: text_key of these texts, or data.text_key for all."


def _unreadable(address: str, error: Exception) -> DataError:
    return DataError(
        f"{address} cannot be read: {getattr(error, 'strerror', None) or first_line(error)}.",
        fix="Correct the section data, or make the place reachable (credentials, network, the store's fsspec driver).",
    )


_BATCH = 256  # documents tokenized at once
_MOST_BYTES_OFF = 0.005  # largest relative difference of a text's bytes and the sum of its tokens' lengths


@dataclass(frozen=True)
class TokenDocument:
    """A document's place, tokens and text: as read, or decoded from a cache's tokens."""

    where: str
    tokens: Tokens
    text: str


def token_documents(
    texts: Texts, tokenizer: Tokenizer, *, text_key: str, wanted: Callable[[str], bool] | None = None
) -> Iterator[TokenDocument]:
    """Yield every document of `texts`, or those whose text is `wanted`; the key of `texts` goes before `text_key`.

    `DataError` where one cannot be read, or tokens do not stand for the bytes of the text.
    """
    if texts.cache is not None:
        yield from (each for each in _cached(texts.cache, tokenizer) if wanted is None or wanted(each.text))
        return
    written = counted = 0
    documents = (each for each in _documents(texts, texts.text_key or text_key) if wanted is None or wanted(each[1]))
    while batch := list(itertools.islice(documents, _BATCH)):
        written += sum(_bytes_of(where, text) for where, text in batch)
        for (where, text), tokens in zip(batch, tokenizer.encode([text for _where, text in batch]), strict=True):
            counted += int(tokenizer.token_bytes[tokens].sum(dtype=np.int64))
            yield TokenDocument(where, tokens, text)
    if abs(counted - written) > _MOST_BYTES_OFF * written:
        raise DataError(
            f"{texts.location}: its text has {written} bytes, but the tokens of {tokenizer.identity.name} encode {counted}.",
            why="Bits per byte would be off by the same ratio.",
            fix="Choose a tokenizer that neither drops nor changes text (byte-level, or with byte fallback).",
        )


def addresses(texts: Texts) -> list[str]:
    """Return the addresses of the files, each once."""
    found = [address for pattern in texts.files or () for address in files_at(pattern)]
    places = Counter(map(_place, found))
    if twice := next((address for address in reversed(found) if places[_place(address)] > 1), None):
        raise DataError(f"{twice} is named twice in {texts.location}.", fix="Name each file once.")
    return found


def _place(address: str) -> str:
    """Return a unique name for a local file."""
    return address if "://" in address else os.path.realpath(address)


def _bytes_of(where: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: half of a surrogate pair at character {error.start}, which UTF-8 cannot encode.",
            fix="Fix the file.",
        ) from error


def _documents(texts: Texts, text_key: str) -> Iterator[Document]:
    if texts.dataset is not None:
        return hub_documents(texts.dataset, config=texts.config, revision=texts.revision, split=texts.split, text_key=text_key)
    return itertools.chain.from_iterable(documents_in(address, text_key=text_key) for address in addresses(texts))


def _cached(cache: str, tokenizer: Tokenizer) -> Iterator[TokenDocument]:
    """Yield the rows of a cache that Levanter built."""
    name, size = tokenizer.identity.name, tokenizer.identity.size
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for=f"the Levanter cache {cache}")
    from levanter.store.cache import TreeCache

    try:
        store = TreeCache.load(cache, {"input_ids": np.zeros(0, np.int32)})
        count, stated, total = len(store), store.ledger.total_num_rows, 0
        stated_tokens = store.ledger.field_counts.get("input_ids")
    except Exception as error:  # whatever tensorstore and the file systems raise
        raise DataError(
            f"{cache} is not a complete Levanter cache: {first_line(error)}.",
            fix="Name the folder that holds shard_ledger.json, or build the cache again with Levanter.",
        ) from error
    if count != stated:
        raise _damaged_cache(cache, f"its ledger counts {stated} rows, its data {count}")
    for start in range(0, count, _BATCH):
        rows = [
            _row_tokens(row, f"{cache}, row {number}", size, name) for number, row in _cache_rows(store, cache, start, count)
        ]
        total += sum(map(len, rows))
        for number, (tokens, text) in enumerate(zip(rows, tokenizer.decode(rows), strict=True), start=start):
            yield TokenDocument(f"{cache}, row {number}", tokens, text)
    if stated_tokens not in (None, total):
        raise _damaged_cache(cache, f"its ledger counts {stated_tokens} tokens, its data {total}")


def _cache_rows(store: Any, cache: str, start: int, count: int) -> list[tuple[int, Any]]:
    """Return a batch of rows with their numbers; `DataError` where a chunk of the cache's data is damaged or cut off."""
    numbers = range(start, min(start + _BATCH, count))
    try:
        return list(zip(numbers, store.get_batch_sync(numbers), strict=True))
    except Exception as error:  # whatever tensorstore and the file systems raise
        raise _damaged_cache(cache, f"rows {start} to {numbers[-1]} (input_ids) cannot be read: {first_line(error)}") from error


def _damaged_cache(cache: str, what: str) -> DataError:
    return DataError(
        f"{cache} is damaged: {what}.",
        why="A disk or a copy lost some of its tokens.",
        fix="Copy the cache again from where it was built, or build it again with Levanter.",
    )


def _row_tokens(row: Any, where: str, size: int, name: str) -> Tokens:
    tokens = np.asarray(row["input_ids"])
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < size:
        raise DataError(
            f"{where}: token {tokens.max()} is none of the {size} of the tokenizer {name}.",
            why="The cache was built with another tokenizer; its bytes could not be counted.",
            fix="Name the tokenizer that it was built with: data.tokenizer.",
        )
    return tokens.astype(token_type(size))


_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
_VALIDATION_SHARE = 1 / 16


def standard_library_corpus(library: Path | None = None) -> TokenCorpus:
    """Return the `.py` files of a Python standard library (default: this interpreter's) as a corpus, split by file.

    Tests, IDLE, lib2to3 and installed packages are left out. Raise `DataError` if the sources are missing.
    """
    root = library or Path(sysconfig.get_paths()["stdlib"])
    parts: dict[bool, list[bytes]] = {True: [], False: []}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not _LEFT_OUT.intersection(name.parts):
            parts[_is_validation(name.as_posix())].append(path.read_bytes())
    train, validation = b"\n".join(parts[False]), b"\n".join(parts[True])
    if len(train) < 1_000_000 or len(validation) < 50_000:
        raise DataError(
            f"{root} holds only {len(train)} bytes of Python source to train on and {len(validation)} to validate on.",
            why="The quickstart trains on the sources of the standard library, which this Python lacks.",
            fix="Use a Python with its sources (python.org, pyenv, conda and Debian's python3 have them).",
        )
    return byte_corpus(source=STANDARD_LIBRARY, train=_as_array(train), validation=_as_array(validation))


def _is_validation(relative_path: str) -> bool:
    first_bytes = hashlib.sha256(relative_path.encode()).digest()[:8]
    return int.from_bytes(first_bytes) < _VALIDATION_SHARE * 2**64


def _as_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8)
