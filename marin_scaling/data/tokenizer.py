"""Tokenizers: bytes, or any that Levanter loads (a folder with `tokenizer.json`, or a name on the Hugging Face hub).

Bits per byte need to know how many bytes of text each kind of token stands for; special tokens stand for none. Trains no
tokenizer.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from marin_scaling.canonical_json import digest_of
from marin_scaling.data.token_corpus import BYTES, TokenizerIdentity, Tokens, token_type
from marin_scaling.errors import DataError, first_line, missing_extra


class Tokenizer(Protocol):
    """From texts to tokens."""

    @property
    def identity(self) -> TokenizerIdentity:
        """Name, digest and number of kinds."""

    @property
    def separator(self) -> int | None:
        """The token after each document; None where the tokenizer has none."""

    def token_bytes(self) -> NDArray[np.uint16]:
        """Bytes of text that each kind of token stands for: (kind,)."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text, without special ones."""


class ByteTokenizer:
    """Each byte of UTF-8 is a token; documents end with a line feed.

    >>> ByteTokenizer().encode(["né"])[0].tolist()
    [110, 195, 169]
    """

    identity = BYTES
    separator: int | None = ord("\n")

    def token_bytes(self) -> NDArray[np.uint16]:
        """One byte each."""
        return np.ones(BYTES.size, np.uint16)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The bytes of each text; `UnicodeEncodeError` for half of a surrogate pair."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]


@dataclass(frozen=True)
class LevanterTokenizer:
    """A tokenizer as Levanter loads it."""

    identity: TokenizerIdentity
    _tokenizer: Any

    @property
    def separator(self) -> int | None:
        """The token that ends a text."""
        found: int | None = self._tokenizer.eos_token_id
        return found

    def token_bytes(self) -> NDArray[np.uint16]:
        """By the tokenizer's own words: characters of byte-level ones, `<0x0A>` for a byte, else what a token decodes to."""
        from levanter.utils.hf_utils import byte_length_of_token

        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        special, is_byte_level = set(self._tokenizer.all_special_ids), _byte_alphabet() <= vocabulary.keys()
        lengths = np.zeros(self.identity.size, np.uint16)
        for word, kind in vocabulary.items():
            if kind in special:
                continue
            if is_byte_level:
                lengths[kind] = len(word)
            else:
                lengths[kind] = 1 if re.fullmatch("<0x[0-9A-Fa-f]{2}>", word) else byte_length_of_token(self._tokenizer, kind)
        return lengths

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text, all texts at once on all cores."""
        kind = token_type(self.identity.size)
        return [np.array(tokens, kind) for tokens in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def load_tokenizer(name: str) -> Tokenizer:
    """`bytes`, or what Levanter finds under a folder or a hub's name; `DataError` where it finds none."""
    if name == BYTES.name:
        return ByteTokenizer()
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for=f"the tokenizer {name}")
    from levanter.tokenizers import load_tokenizer as load

    try:
        found = load(name)
    except Exception as error:  # whatever the hub, the file system or the tokenizers' reader raise
        raise DataError(
            f"The tokenizer {name!r} cannot be loaded: {first_line(error)}.",
            why="It is a folder with tokenizer.json and tokenizer_config.json, or the name of one on the Hugging Face hub.",
            fix="Correct data.tokenizer in the ladder file; log in (hf auth login) where the hub keeps it closed.",
        ) from error
    return LevanterTokenizer(TokenizerIdentity(name=name, digest=_digest(found), size=_size(found)), found)


def _size(tokenizer: Any) -> int:
    kinds: dict[str, int] = tokenizer.get_vocab()
    return 1 + max(kinds.values())


def _digest(tokenizer: Any) -> str:
    return digest_of({"vocabulary": tokenizer.get_vocab(), "end": tokenizer.eos_token_id})


def _byte_alphabet() -> set[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return set(ByteLevel.alphabet())
