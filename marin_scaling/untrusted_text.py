"""Checks of text from strangers: names, links, digests, and leaked keys."""

from __future__ import annotations

import html
import re
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, StringConstraints

from marin_scaling.strict_model import COMMIT_PATTERN, LINE_PATTERN, LINK_PATTERN, NAME_PATTERN, WORDS_PATTERN

_ENDINGS = (
    "token",
    "apikey",
    "accesskey",
    "accesskeyid",
    "secretkey",
    "privatekey",
    "secret",
    "password",
    "passwd",
    "signature",
)
_WHOLE = frozenset({"auth", "authorization", "credential", "credentials", "jwt", "key", "pwd", "session", "sessionid", "sig"})
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s<>\"`\\]+", re.IGNORECASE)
_FIELD = re.compile(r"([?&;#/])([^?&;#/=]+)=([^?&;#/]*)")
_PASSWORD = re.compile(r"(://)[^/?#@\s]*@")
_NO_KEYS = re.compile(r"(eos|bos|pad|unk|mask|sep|cls|start|end|image)_?tokens?|.*per_?token|key|session|sig", re.IGNORECASE)
_OF_A_VOCABULARY = re.compile(r"<.*>", re.DOTALL)
_SHORTEST_SECRET = 12
_MOST_LAYERS = 5  # of nested percent encoding


def key_in(address: str) -> str:
    """Return the name of a key in an address, or "a password"; empty if the address holds neither.

    >>> key_in("https://wandb.ai/lab/reports/x?accessToken=abc"), key_in("https://ada:pw@example.org/"), key_in("https://a.org/?q=1")
    ('accessToken', 'a password', '')
    """
    plain = _plain(address)
    if _PASSWORD.search(plain):
        return "a password"
    return _field_with_key(plain)


def without_key(address: str) -> str:
    """Return the address without keys and passwords; an address with a hidden key is decoded first.

    >>> without_key("https://wandb.ai/lab/reports/x?accessToken=abc&nw=ada")
    'https://wandb.ai/lab/reports/x?nw=ada'
    """
    if not key_in(address):
        return address
    shown = address if _PASSWORD.search(address) or _field_with_key(address) else _plain(address)
    kept = _FIELD.sub(lambda field: field[1] if field[3] and names_key(field[2]) else field[0], _PASSWORD.sub(r"\1", shown))
    tidy = re.sub(r"([?&;#])[&;]+", r"\1", kept)
    tidy = re.sub(r"[?&;#]+$", "", tidy)
    if not key_in(tidy):
        return tidy
    return without_key(_plain(tidy)) if tidy != address else ""


def keys_in_text(text: str) -> list[str]:
    """Return the names of keys in the addresses of a text.

    >>> keys_in_text("see https://a.org/x?token=1, and https://b.org")
    ['token']
    """
    return [key for found in _ADDRESS.findall(text) if (key := key_in(found))]


def text_without_keys(text: str) -> str:
    """Return the text with keys removed from all addresses."""
    return _ADDRESS.sub(lambda match: without_key(match[0]), text)


def names_key(name: str) -> bool:
    """Return True if a field of this name holds a key, in any spelling.

    >>> [names_key(name) for name in ("X-Amz-Security-Token", "wandb_api_key", "tokenizer", "page")]
    [True, True, False, False]
    """
    letters = re.sub(r"[^a-z]", "", name.lower())
    return letters in _WHOLE or letters.endswith(_ENDINGS)


def is_secret(name: str, value: str) -> bool:
    """Return True if a setting is a key: its name says so, and its value is not made of words.

    >>> is_secret("hf_token", "hf_abcdefghijkl"), is_secret("eos_token", "<|endoftext|>"), is_secret("key", "text")
    (True, False, False)
    """
    is_word = len(value) < _SHORTEST_SECRET or re.search(r"\s", value) is not None or value == name
    return names_secret(name) and not is_word and not _OF_A_VOCABULARY.fullmatch(value)


def names_secret(name: str) -> bool:
    """Return True if a setting of this name, or in a list of this name, is a key, and not part of a vocabulary or table.

    >>> [names_secret(name) for name in ("hf_token", "api_keys", "eos_token", "flops_per_token", "key", "special_tokens_map")]
    [True, True, False, False, False, False]
    """
    return not _NO_KEYS.fullmatch(name) and (names_key(name) or names_key(name.removesuffix("s")))


def _field_with_key(address: str) -> str:
    return next((name for _, name, value in _FIELD.findall(address) if value and names_key(name)), "")


def _plain(address: str) -> str:
    """Return the address with all layers of percent encoding removed."""
    for _ in range(_MOST_LAYERS):
        plainer = html.unescape(unquote(address))
        if plainer == address:
            break
        address = plainer
    return address


def can_be_read(address: str) -> bool:
    """Return True if every parser accepts the address.

    >>> can_be_read("https://example.org/x"), can_be_read("https://[x")
    (True, False)
    """
    try:
        return urlsplit(address).hostname is not None
    except ValueError:
        return False


Commit = Annotated[str, StringConstraints(pattern=COMMIT_PATTERN)]


def _readable(address: str) -> str:
    if not can_be_read(address):
        raise ValueError("must be a valid address")
    return address


Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=LINE_PATTERN)]
Words = Annotated[str, StringConstraints(max_length=10_000, pattern=WORDS_PATTERN)]
Link = Annotated[str, StringConstraints(max_length=2000, pattern=LINK_PATTERN), AfterValidator(_readable)]
Name = Annotated[str, StringConstraints(max_length=200, pattern=NAME_PATTERN)]
Count = Annotated[int, Field(gt=0, le=10**30)]
Amount = Annotated[float, Field(gt=0, le=1e60)]  # products of a few of these are finite


_STORES = ("abfs", "abfss", "adl", "az", "ftp", "gcs", "gs", "hf", "http", "https", "memory", "oci", "oss", "r2", "s3", "s3a")
FILE_SYSTEMS = frozenset({"file", "local", *_STORES})
"""Protocols of an address whose file systems only read bytes."""


def plain_address(address: str) -> str:
    """Return a path, pattern or address of one known file system; `ValueError` for any other.

    >>> plain_address("gs://bucket/*.jsonl"), plain_address("text/a.jsonl")
    ('gs://bucket/*.jsonl', 'text/a.jsonl')
    """
    protocol, found, _ = address.partition("://")
    if "::" in address or (found and protocol not in FILE_SYSTEMS):
        raise ValueError(f"must be a path, or begin with one of {', '.join(sorted(FILE_SYSTEMS))} and ://")
    return address


def plain_data_set(name: str) -> str:
    """Return the name or folder of a data set; `ValueError` for a name without a slash, which can name a loader script.

    >>> plain_data_set("our-org/code"), plain_data_set("./code")
    ('our-org/code', './code')
    """
    if "/" not in plain_address(name) or "://" in name:
        raise ValueError("must be OWNER/NAME, or the path of a folder, such as ./NAME")
    return name


def refuse_references() -> None:
    """Disable the file system `reference` in this process: its files can name any address and run templates."""
    import fsspec  # slow, and most commands do not need it

    class Refused(fsspec.AbstractFileSystem):  # type: ignore[misc]
        """A file system that is never opened."""

        cachable = False

        def __init__(self, *_: object, **__: object) -> None:
            raise ValueError("the file system `reference` runs templates of its file, and is disabled")

    fsspec.register_implementation("reference", Refused, clobber=True)
