"""Tokenizers: bytes, or any that Hugging Face's `AutoTokenizer` loads from a folder or the hub.

Bits per byte need the bytes of text of each token; special tokens have none.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
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
    def end_word(self) -> str:
        """The separator as the tokenizer writes it."""

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
    end_word = "\n"
    token_bytes = np.ones(BYTES.size, np.uint16)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the bytes of each text; `UnicodeEncodeError` for half of a surrogate pair."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def decode(self, documents: Sequence[Tokens]) -> list[str]:
        """Return the text of each document; invalid UTF-8 becomes halves of surrogate pairs (PEP 383)."""
        return [tokens.tobytes().decode(errors="surrogateescape") for tokens in documents]


@dataclass(frozen=True)
class LevanterTokenizer:
    """A tokenizer of the `tokenizers` library, as Levanter holds it. Names of special tokens in a text are text."""

    identity: TokenizerIdentity
    separator: int
    _tokenizer: Any
    _added: frozenset[int]
    _special: frozenset[int]
    _space: str

    @property
    def end_word(self) -> str:
        """The separator as the vocabulary has it."""
        return str(self._tokenizer.convert_ids_to_tokens(self.separator))

    @cached_property
    def token_bytes(self) -> NDArray[np.uint16]:
        """Bytes of each token: its length in byte-level vocabularies, 1 for `<0x0A>` and the like, else decoded length."""
        from levanter.utils.hf_utils import byte_length_of_token

        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        is_byte_level = _byte_alphabet() <= vocabulary.keys()
        lengths = np.zeros(self.identity.size, np.uint16)
        for word, kind in vocabulary.items():
            if kind in self._special:
                continue
            if kind in self._added:
                lengths[kind] = len(word.encode())
            elif is_byte_level:
                lengths[kind] = len(word)
            elif re.fullmatch("<0x[0-9A-Fa-f]{2}>", word):
                lengths[kind] = 1
            elif self._space:
                lengths[kind] = len(word.replace(self._space, " ").encode())
            else:
                lengths[kind] = byte_length_of_token(self._tokenizer, kind)
        return lengths

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text; texts are encoded in parallel on all cores."""
        kind = token_type(self.identity.size)
        return [np.array(tokens, kind) for tokens in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def decode(self, documents: Sequence[Tokens]) -> list[str]:
        """Return the text of each document as the tokenizer decodes it, which may differ from the original."""
        return [self._tokenizer.decode(tokens[self.token_bytes[tokens] > 0].tolist()) for tokens in documents]


def load_tokenizer(name: str, *, end_token: str | None = None) -> Tokenizer:
    """Return `bytes`, or the tokenizer in a folder or under a hub's name; `end_token` ends documents, if its files name none.

    `DataError` if there is no such tokenizer, or no token that can end a text.
    """
    if name == BYTES.name:
        return ByteTokenizer()
    require_folder(name)
    if importlib.util.find_spec("levanter") is None:
        raise missing_extra("train", needed_for=f"the tokenizer {name}")
    try:
        found = _loaded(name)
        whole = _switched_to_plain_text(found)
    except Exception as error:  # whatever the hub, the file system or the tokenizer's parser raise
        raise DataError(
            f"The tokenizer {name!r} cannot be loaded: {first_line(error)}.",
            why="It must be the hub's name of a tokenizer, or a folder that AutoTokenizer loads.",
            fix="Correct data.tokenizer; log in (hf auth login) for a gated one. If conversion fails: "
            f"AutoTokenizer.from_pretrained({name!r}).save_pretrained(FOLDER), and name that folder.",
        ) from error
    separator = _end_token(found, whole, name, end_token)
    special = {each["id"] for each in whole.get("added_tokens", ()) if each.get("special")}
    return LevanterTokenizer(
        identity=TokenizerIdentity(
            name=name,
            digest=digest_of({"tokenizer": whole, "end": separator}),
            size=1 + max(found.get_vocab().values()),
        ),
        separator=separator,
        _tokenizer=found,
        _added=frozenset(each["id"] for each in whole.get("added_tokens", ())),
        _special=frozenset({separator, *special, *found.all_special_ids}),
        _space=_SPACE if _SPACE in json.dumps(whole.get("decoder"), ensure_ascii=False) else "",
    )


def _loaded(name: str) -> Any:
    """Return the tokenizer as Levanter loads it; without a `tokenizer.json`, what AutoTokenizer makes of the other files."""
    from levanter.tokenizers import HfMarinTokenizer
    from levanter.tokenizers import load_tokenizer as load

    # Without a network, each of its tries is a line; our error has the cause.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    if not os.path.isdir(name) or os.path.exists(os.path.join(name, "tokenizer.json")):
        try:
            return load(name)
        except Exception:
            if os.path.isdir(name):
                raise
    from transformers import AutoTokenizer

    fast = AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
    vocabulary = fast.get_vocab()
    return HfMarinTokenizer(
        _tokenizer=fast.backend_tokenizer,
        _name_or_path=name,
        _bos_id=fast.bos_token_id,
        _eos_id=fast.eos_token_id,
        _pad_id=fast.pad_token_id,
        _bos_token=fast.bos_token,
        _eos_token=fast.eos_token,
        _chat_template=None,
        _vocab_size=len(vocabulary),
        _all_special_ids=list(fast.all_special_ids),
        _id_to_token={kind: word for word, kind in vocabulary.items()},
        _vocab=vocabulary,
    )


_SPACE = "\u2581"  # SentencePiece's sign for a space
_END_FILES = ("special_tokens_map.json", "generation_config.json", "config.json")
_END_WORDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|end|>")


def _end_token(found: Any, whole: Mapping[str, Any], name: str, end_token: str | None) -> int:
    """Return the token that ends a text: named in the ladder file or in a file of the tokenizer, or the only special one."""
    vocabulary: dict[str, int] = found.get_vocab()
    if end_token is not None:
        if end_token in vocabulary:
            return vocabulary[end_token]
        raise DataError(
            f"The tokenizer {name!r} has no token {end_token!r}.",
            why="data.end_token is the token after each document.",
            fix="Name a token of its vocabulary in data.end_token.",
        )
    if found.eos_token_id is not None:
        return int(found.eos_token_id)
    for file in _END_FILES:
        named = _named_end(_file_of(name, file), vocabulary)
        if named is not None:
            return named
    special = {each["content"]: each["id"] for each in whole.get("added_tokens", ()) if each.get("special")}
    alone = [special[word] for word in _END_WORDS if word in special] or list(special.values()) * (len(special) == 1)
    if alone:
        return int(alone[0])
    raise DataError(
        f"The tokenizer {name!r} has no token for the end of a text: none in tokenizer_config.json, {', '.join(_END_FILES)}.",
        why="Documents would run into each other.",
        fix="Name one, as in data.end_token: '<|endoftext|>'.",
    )


def _named_end(document: Mapping[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    """Return the end token that a tokenizer's or a model's file names, by number or word; the first of several."""
    for key in ("eos_token_id", "eos_token"):
        named: Any = document.get(key)
        named = named[0] if isinstance(named, list) and named else named
        named = named.get("content") if isinstance(named, Mapping) else named
        if isinstance(named, str) and named in vocabulary:
            return vocabulary[named]
        if isinstance(named, int) and named in vocabulary.values():
            return named
    return None


def _file_of(name: str, file: str) -> dict[str, Any]:
    """Return a small JSON file beside a tokenizer, here or on the hub; nothing where there is none."""
    path = os.path.join(name, file)
    if not os.path.isdir(name):
        from huggingface_hub import hf_hub_download

        try:
            path = hf_hub_download(name, file)
        except Exception:  # no such file there, or no network: another file may name the token
            return {}
    try:
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def require_folder(name: str) -> None:
    """Raise `DataError` if a name denotes a missing folder, which Levanter would look for on the hub."""
    first, _, rest = name.partition("/")
    is_path = name.startswith(("/", ".", "~")) or name.endswith("/") or (bool(rest) and os.path.isdir(first))
    if is_path and not os.path.isdir(name):
        raise DataError(
            f"The tokenizer {name!r}: there is no such folder.",
            why="A name that looks like a path is not searched on the Hugging Face hub.",
            fix="Correct data.tokenizer: a path relative to the current folder, or an absolute one.",
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
