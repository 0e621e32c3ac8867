"""Documents of text, one after the other: from files on any fsspec address, and from data sets of the Hugging Face hub.

What is not text where text should be is a `DataError` that names file and row. Tokens and caches: `prepare`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as parquet

from marin_scaling.errors import DataError, first_line, missing_extra
from marin_scaling.file_systems import plain_address, plain_data_set, refuse_references

Document = tuple[str, str]
"""Where it stands, and its text."""

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_CHANGE_WITH_CONTENT = ("mtime", "etag", "last-modified", "lastmodified", "updated", "md5hash", "content-md5")


def files_at(address: str) -> list[str]:
    """Addresses of the files that a pattern names, sorted; `DataError` where there are none or the place cannot be read.

    `hf://datasets/NAME/...` reads a hub's repository, `gs://` and `s3://` a bucket, anything else this machine.
    """
    try:
        system, path = fsspec.core.url_to_fs(plain_address(address))
        if _is_file(system, path):
            return [address]
        found = sorted(system.glob(path)) if any(sign in path for sign in "*?[") else []
        is_folder = not found and system.isdir(path)
    except Exception as error:  # whatever a store's driver raises
        raise _unreadable(address, error) from error
    if not found:
        raise _without_files(address, is_folder=is_folder)
    return [_as_given(each, address, system) for each in found]


def _without_files(address: str, *, is_folder: bool) -> DataError:
    if is_folder:
        what, more = "it is a folder", f": name the files in it, such as {address.rstrip('/')}/**/*.txt"
    elif "://" in address:
        what, more = "there is no such file, or it cannot be reached", ""
    else:
        what, more = "there is no such file", "; paths are relative to the folder in which you type the command"
    return DataError(
        f"{address}: {what}.",
        why=_NO_OTHER_TEXT,
        fix=f"Correct data in the ladder file{more}.",
    )


def _is_file(system: fsspec.AbstractFileSystem, path: str) -> bool:
    """Unlike fsspec's own answer, an error where the place cannot be asked."""
    try:
        return bool(system.info(path)["type"] == "file")
    except FileNotFoundError:
        return False


def _as_given(path: str, address: str, system: fsspec.AbstractFileSystem) -> str:
    """With the protocol where the address has one, relative to the working folder where the address is."""
    if "://" in address:
        return str(system.unstrip_protocol(path))
    return path if os.path.isabs(address) else os.path.relpath(path)


def fingerprint(address: str) -> str:
    """What changes when the file at an address does, without reading it: size, and time or tag as its store has them."""
    system, path = fsspec.core.url_to_fs(address)
    known = {key.lower(): value for key, value in system.info(path).items()}
    told = [key for key in _CHANGE_WITH_CONTENT if key in known] or ["created"]
    return f"{address} " + " ".join(f"{key}={known.get(key)}" for key in ["size", *told])


def folder_fingerprint(address: str) -> str:
    """The same for all files in a folder."""
    system, path = fsspec.core.url_to_fs(address)
    return "\n".join(fingerprint(_as_given(each, address, system)) for each in sorted(system.find(path)))


def documents_in(address: str, *, text_key: str) -> Iterator[Document]:
    """The documents of one file: lines of JSON, rows of Parquet, or all of a text file; by the ending of its name."""
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
                yield address, _decoded(stream.read(), address)
        else:
            raise DataError(
                f"{address}: what is in it cannot be told from its name.",
                why="Files of JSON lines (.jsonl), Parquet (.parquet) and text (.txt, .md, .py) are read, also compressed.",
                fix="Give it the ending of what it is.",
            )
    except DataError:
        raise
    except Exception as error:  # whatever the store's driver, the unpacker and the reader of the format raise
        raise _unreadable(address, error) from error


def hub_documents(dataset: str, *, config: str | None, revision: str | None, split: str, text_key: str) -> Iterator[Document]:
    """The documents of a split, by the library `datasets`; `dataset` is a hub's name or a folder of that layout."""
    rows = _hub_rows(dataset, config=config, revision=revision, split=split)
    for number, row in enumerate(rows):
        yield (where := f"{dataset}, {split}, row {number}"), _text(row, text_key, where)


def hub_fingerprint(dataset: str, *, revision: str | None) -> str:
    """What changes when a data set does: its commit on the hub, or the files of a folder; no row is read."""
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
                row = json.loads(_decoded(line, where))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: it is not JSON: {first_line(error)}.", why=_WHY, fix=_FIX) from error
            yield where, _text(row, text_key, where)


def _rows_of_parquet(address: str, text_key: str) -> Iterator[Document]:
    with fsspec.open(address, "rb") as stream:
        file = parquet.ParquetFile(stream)
        if text_key not in file.schema_arrow.names:
            raise DataError(
                f"{address}: it has no column {text_key!r}; it has {', '.join(file.schema_arrow.names)}.", why=_WHY, fix=_FIX
            )
        number = 0
        for batch in file.iter_batches(columns=[text_key], batch_size=1024):
            for row in batch.to_pylist():
                yield (where := f"{address}, row {number}"), _text(row, text_key, where)
                number += 1


@contextlib.contextmanager
def _opened(address: str) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked. A packed file that was cut off is an error, which `zstandard` would not make of it."""
    is_zstd = address.endswith(".zst")
    with fsspec.open(address, "rb", compression=None if is_zstd else "infer") as stream:
        yield io.BufferedReader(pa.CompressedInputStream(stream, "zstd")) if is_zstd else stream


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: it is not UTF-8 (byte {error.start}).", why=_WHY, fix="Convert it (iconv).") from error


def _text(row: Any, text_key: str, where: str) -> str:
    text = row.get(text_key) if isinstance(row, Mapping) else None
    if not isinstance(text, str):
        found = "no such key" if not isinstance(row, Mapping) or text_key not in row else f"{type(text).__name__}, not text"
        raise DataError(f"{where}: {text_key}: {found}.", why=_WHY, fix=_FIX)
    return text


_NO_OTHER_TEXT = "A ladder is trained on the text that its file names, and on no other."
_WHY = "Nothing of the data is passed over in silence."
_FIX = "Correct the file, or name the key that holds the text (text_key)."


def _unreadable(address: str, error: Exception) -> DataError:
    return DataError(
        f"{address} cannot be read: {getattr(error, 'strerror', None) or first_line(error)}.",
        why=_NO_OTHER_TEXT,
        fix="Correct data in the ladder file, or make the place reachable (credentials, network, the store's fsspec driver).",
    )
