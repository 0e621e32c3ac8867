"""Addresses that a stranger's file may name: this machine, the web and object stores.

Other file systems of fsspec do what the file at an address says: `reference` runs the templates in it, and a chain (`::`) opens
what one file names in another. A reader of data sets that is named like a format (`pandas`) unpickles files.
"""

from __future__ import annotations

_STORES = ("abfs", "abfss", "adl", "az", "ftp", "gcs", "gs", "hf", "http", "https", "memory", "oci", "oss", "r2", "s3", "s3a")
FILE_SYSTEMS = frozenset({"file", "local", *_STORES})
"""Protocols of an address; the file systems behind them read bytes and do nothing else."""


def plain_address(address: str) -> str:
    """Return a path, pattern or address of one known file system; `ValueError` for any other.

    >>> plain_address("gs://bucket/*.jsonl"), plain_address("text/a.jsonl")
    ('gs://bucket/*.jsonl', 'text/a.jsonl')
    """
    protocol, found, _ = address.partition("://")
    if "::" in address or (found and protocol not in FILE_SYSTEMS):
        raise ValueError(f"an address is a path, or begins with one of {', '.join(sorted(FILE_SYSTEMS))} and ://")
    return address


def plain_data_set(name: str) -> str:
    """Return the name or folder of a data set; `ValueError` for a name without a slash, which can name a reader of files.

    >>> plain_data_set("our-org/code"), plain_data_set("./code")
    ('our-org/code', './code')
    """
    if "/" not in plain_address(name) or "://" in name:
        raise ValueError("a data set is named OWNER/NAME, or by the path of its folder, as in ./NAME")
    return name


def refuse_references() -> None:
    """Let no library of this process open an address of the file system `reference`, whichever file names it."""
    import fsspec  # not at the top: it is slow, and most commands need none

    class Refused(fsspec.AbstractFileSystem):  # type: ignore[misc]
        """A file system that is never opened."""

        cachable = False

        def __init__(self, *_: object, **__: object) -> None:
            raise ValueError("the file system `reference` runs templates of its file, and is not opened")

    fsspec.register_implementation("reference", Refused, clobber=True)
