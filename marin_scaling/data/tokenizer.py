"""Tokenizers: bytes, or any that Levanter loads (a folder with `tokenizer.json`, or a name on the Hugging Face hub).

Bits per byte need the bytes of text of each token; special tokens have none.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marin_scaling.canonical_json import digest_of
from marin_scaling.data.corpus import BYTES, TokenizerIdentity, Tokens, token_type
from marin_scaling.errors import DataError, first_line, missing_extra


class Tokenizer(Protocol):
    """Conversion between texts and tokens."""

    @property
    def identity(self) -> TokenizerIdentity:
        """Name, digest and size of the vocabulary."""

    @property
    def separator(self) -> int:
        """Token after each document."""

    @property
    def token_bytes(self) -> NDArray[np.uint16]:
        """Bytes of text of each token in the vocabulary: (token,)."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text, without special ones."""

    def decode(self, documents: Sequence[Tokens]) -> list[str]:
        """Return the text of each document, without special tokens."""


class ByteTokenizer:
    """Tokenizer of bytes: each byte of UTF-8 is a token; documents end with a line feed.

    >>> ByteTokenizer().encode(["né"])[0].tolist()
    [110, 195, 169]
    """

    identity = BYTES
    separator = ord("\n")
    token_bytes = np.ones(BYTES.size, np.uint16)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the bytes of each text; `UnicodeEncodeError` for half of a surrogate pair."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def decode(self, documents: Sequence[Tokens]) -> list[str]:
        """Return the text of each document; invalid UTF-8 becomes halves of surrogate pairs (PEP 383)."""
        return [tokens.tobytes().decode(errors="surrogateescape") for tokens in documents]


@dataclass(frozen=True)
class LevanterTokenizer:
    """A tokenizer loaded by Levanter. Names of special tokens within a text are encoded as text."""

    identity: TokenizerIdentity
    separator: int
    _tokenizer: Any
    _added: frozenset[int]

    @cached_property
    def token_bytes(self) -> NDArray[np.uint16]:
        """Bytes of each token: its length in byte-level vocabularies, 1 for `<0x0A>` and the like, else decoded length."""
        from levanter.utils.hf_utils import byte_length_of_token

        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        special, is_byte_level = set(self._tokenizer.all_special_ids), _byte_alphabet() <= vocabulary.keys()
        lengths = np.zeros(self.identity.size, np.uint16)
        for word, kind in vocabulary.items():
            if kind in special:
                continue
            if kind in self._added:
                lengths[kind] = len(word.encode())
            elif is_byte_level:
                lengths[kind] = len(word)
            else:
                lengths[kind] = 1 if re.fullmatch("<0x[0-9A-Fa-f]{2}>", word) else byte_length_of_token(self._tokenizer, kind)
        return lengths

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text; texts are encoded in parallel on all cores."""
        kind = token_type(self.identity.size)
        return [np.array(tokens, kind) for tokens in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, documents: Sequence[Tokens]) -> list[str]:
        """Return the text of each document as the tokenizer decodes it, which may differ from the original."""
        return [self._tokenizer.decode(tokens[self.token_bytes[tokens] > 0].tolist()) for tokens in documents]


def load_tokenizer(name: str) -> Tokenizer:
    """Load `bytes`, or a tokenizer from a folder or hub with Levanter; `DataError` if it is missing or has no end token."""
    if name == BYTES.name:
        return ByteTokenizer()
    require_folder(name)
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for=f"the tokenizer {name}")
    from levanter.tokenizers import load_tokenizer as load

    try:
        found = load(name)
        whole = _switched_to_plain_text(found)
    except Exception as error:  # whatever the hub, the file system or the tokenizer's parser raise
        raise DataError(
            f"The tokenizer {name!r} cannot be loaded: {first_line(error)}.",
            why="It must be a folder with tokenizer.json and tokenizer_config.json, or a name on the Hugging Face hub.",
            fix="Fix data.tokenizer in the ladder file; log in (hf auth login) for a private or gated one.",
        ) from error
    if found.eos_token_id is None:
        raise DataError(
            f"The tokenizer {name!r} has no token for the end of a text.",
            why="Documents could not be separated.",
            fix="Set eos_token in its tokenizer_config.json.",
        )
    return LevanterTokenizer(
        identity=TokenizerIdentity(
            name=name,
            digest=digest_of({"tokenizer": whole, "end": found.eos_token_id}),
            size=1 + max(found.get_vocab().values()),
        ),
        separator=found.eos_token_id,
        _tokenizer=found,
        _added=frozenset(each["id"] for each in whole.get("added_tokens", ())),
    )


def require_folder(name: str) -> None:
    """Raise `DataError` if a name denotes a missing folder, which Levanter would look for on the hub."""
    first, _, rest = name.partition("/")
    is_path = name.startswith(("/", ".", "~")) or name.endswith("/") or (bool(rest) and os.path.isdir(first))
    if is_path and not os.path.isdir(name):
        raise DataError(
            f"The tokenizer {name!r}: there is no such folder.",
            why="A name that looks like a path is not searched on the Hugging Face hub.",
            fix="Fix data.tokenizer in the ladder file: a path relative to the current folder, or an absolute one.",
        )


def _switched_to_plain_text(found: Any) -> dict[str, Any]:
    """Set the tokenizer to encode names of special tokens as text; return its whole definition."""
    rust = found._tokenizer  # Levanter's interface lacks both this switch and the definition
    rust.encode_special_tokens = True
    whole: dict[str, Any] = json.loads(rust.to_str())
    return whole


def _byte_alphabet() -> set[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return set(ByteLevel.alphabet())
