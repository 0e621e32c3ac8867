"""A tokenized corpus in memory, its digest, and the windows a run reads from it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin_scaling.canonical_json import digest_of, dump_canonical
from marin_scaling.errors import DataError, MarinScalingError, StorageError
from marin_scaling.files import read_own_bytes, replace_file

Tokens = NDArray[np.unsignedinteger]
"""Array of shape (token,): uint8, uint16 or uint32, the smallest that holds the vocabulary."""

TRAIN = "train"
"""Name of the row of training tokens."""
HELD_OUT = "validation"
"""Default name of the held-out tokens if there is a single set."""
MANIFEST_NAME = "corpus.json"


@dataclass(frozen=True, kw_only=True)
class TokenizerIdentity:
    """A tokenizer by name, digest and size of its vocabulary."""

    name: str
    digest: str
    size: int


BYTES = TokenizerIdentity(name="bytes", digest=digest_of({"bytes": 256}), size=256)
"""The tokenizer of bytes: each byte of UTF-8 is a token."""


@dataclass(frozen=True, kw_only=True)
class RowFacts:
    """Length of a row in tokens and in bytes of text, and the digest of its tokens."""

    tokens: int
    text_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class TokenCorpus:
    """Tokens for training and evaluation.

    `token_bytes` has the bytes of text of each token in the vocabulary; `facts` describes each row by its name (`train`, or a
    held-out one).
    """

    source: str
    tokenizer: TokenizerIdentity
    token_bytes: NDArray[np.uint16]
    train: Tokens
    validation: Mapping[str, Tokens]
    facts: Mapping[str, RowFacts]
    digest: str
    """SHA-256 over the digests of all rows; identifies the exact tokens."""
    parts: Mapping[str, RowFacts] = field(default_factory=dict)
    """The named corpora of a mixture, whose tokens follow each other in `train` in this order; empty for one text."""


def byte_corpus(*, source: str, train: NDArray[np.uint8], validation: NDArray[np.uint8]) -> TokenCorpus:
    """Return a corpus whose tokens are bytes, with one held-out row."""
    facts = {
        name: RowFacts(tokens=len(row), text_bytes=len(row), sha256=_sha256(row))
        for name, row in ((TRAIN, train), (HELD_OUT, validation))
    }
    return TokenCorpus(
        source=source,
        tokenizer=BYTES,
        token_bytes=np.ones(BYTES.size, np.uint16),
        train=train,
        validation={HELD_OUT: validation},
        facts=facts,
        digest=corpus_digest({name: each.sha256 for name, each in facts.items()}),
    )


def token_type(size: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest type that holds a vocabulary of this size.

    >>> token_type(256), token_type(50_257), token_type(128_256)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("u1" if size <= 2**8 else "<u2" if size <= 2**16 else "<u4")


def corpus_digest(
    sha256_by_row: Mapping[str, str], tokenizer: TokenizerIdentity = BYTES, *, parts: Mapping[str, str] | None = None
) -> str:
    """Return the digest of a corpus from those of its rows (`train` and held-out names), its tokenizer, if not bytes, and
    those of the parts of a mixture."""
    more = {} if tokenizer == BYTES else {"tokenizer": tokenizer.digest}
    return digest_of({**sha256_by_row, **more, **({"parts": dict(parts)} if parts else {})})


def write_corpus(corpus: TokenCorpus, folder: Path) -> None:
    """Write the corpus for training processes to map, unless the folder holds all of it already.

    `StorageError` if the corpus itself is damaged, because it was mapped from a damaged folder.
    """
    found = find_corpus(folder)
    if found is not None and not damaged_rows(found):
        return
    if damaged := damaged_rows(corpus):
        raise _lost(row_path(folder, damaged[0]), corpus.facts[damaged[0]])
    rows = {TRAIN: corpus.train, **corpus.validation}
    for name, tokens in rows.items():
        replace_file(row_path(folder, name), tokens.tobytes())
    write_manifest(
        folder,
        source=corpus.source,
        tokenizer=corpus.tokenizer,
        token_bytes=corpus.token_bytes,
        rows=corpus.facts,
        parts=corpus.parts,
        digest=corpus.digest,
    )


def write_manifest(
    folder: Path,
    *,
    source: str,
    tokenizer: TokenizerIdentity,
    token_bytes: NDArray[np.uint16],
    rows: Mapping[str, RowFacts],
    digest: str,
    parts: Mapping[str, RowFacts],
) -> None:
    """Write the last file of a corpus, which marks the corpus as complete."""
    document = {
        "source": source,
        "tokenizer": asdict(tokenizer),
        "token_bytes": token_bytes.tolist(),
        "rows": {name: asdict(known) for name, known in rows.items()},
        "digest": digest,
        **({"parts": [[name, asdict(known)] for name, known in parts.items()]} if parts else {}),
    }
    replace_file(folder / MANIFEST_NAME, dump_canonical({**document, "sha256": digest_of(document)}))


def map_corpus(folder: Path) -> TokenCorpus:
    """Map the corpus in a folder from disk without copying; `StorageError` if the manifest was changed."""
    document = _manifest(folder / MANIFEST_NAME)
    tokenizer = TokenizerIdentity(**document["tokenizer"])
    kind = token_type(tokenizer.size)
    facts = {name: RowFacts(**known) for name, known in document["rows"].items()}
    rows = {name: _mapped(row_path(folder, name), kind, known) for name, known in facts.items()}
    return TokenCorpus(
        source=document["source"],
        tokenizer=tokenizer,
        token_bytes=np.array(document["token_bytes"], np.uint16),
        train=rows.pop(TRAIN),
        validation=rows,
        facts=facts,
        digest=document["digest"],
        parts={name: RowFacts(**known) for name, known in document.get("parts", [])},
    )


def _manifest(path: Path) -> dict[str, Any]:
    raw = read_own_bytes(path)
    try:
        document = dict(json.loads(raw))
        if document.pop("sha256", None) == digest_of(document):
            return document
    except (ValueError, TypeError, MarinScalingError):  # not JSON, or numbers outside of canonical JSON
        pass
    raise StorageError(
        f"{path} was changed after it was written.",
        why="Losses in bits per byte depend on the bytes per token in it.",
        fix=f"Remove {path.parent}, then rerun the command; it tokenizes the text again.",
    )


def find_corpus(folder: Path) -> TokenCorpus | None:
    """Return the corpus in a folder if every row has the length in the manifest, else None."""
    try:
        return map_corpus(folder)
    except (StorageError, ValueError, KeyError, TypeError):  # missing, damaged, or of another version
        return None


def damaged_rows(corpus: TokenCorpus) -> list[str]:
    """Return the names of the rows whose tokens were changed."""
    rows = {TRAIN: corpus.train, **corpus.validation}
    return [name for name, tokens in rows.items() if _sha256(tokens) != corpus.facts[name].sha256]


def _mapped(path: Path, kind: np.dtype[np.unsignedinteger], known: RowFacts) -> Tokens:
    if not path.exists() or path.stat().st_size != known.tokens * kind.itemsize:
        raise _lost(path, known)
    return np.memmap(path, dtype=kind, mode="r")


def _lost(path: Path, known: RowFacts) -> StorageError:
    return StorageError(
        f"{path} does not hold the {known.tokens} tokens that were written.",
        fix=f"Remove {path.parent}, then rerun the command; it tokenizes the text again.",
    )


def data_folder(digest: str, *, work_root: Path) -> Path:
    """Return the folder of the corpus with this digest."""
    return work_root / "data" / digest[:16]


def row_path(folder: Path, name: str) -> Path:
    """Return the path of a row of tokens: `train`, or a held-out one."""
    return folder / f"{name}.bin"


def _sha256(tokens: Tokens) -> str:
    return hashlib.sha256(np.ascontiguousarray(tokens).data).hexdigest()  # without copying a mapped file


def training_window_starts(tokens: int, *, seq_len: int, seed: int, epochs: int = 1) -> NDArray[np.int64]:
    """Return the starts of all full, disjoint windows, shuffled in each epoch by `seed`, which may have 64 bits.

    >>> sorted(training_window_starts(10, seq_len=3, seed=7).tolist())
    [0, 3, 6]
    """
    starts = np.arange(tokens // seq_len, dtype=np.int64) * seq_len
    seeds: list[int | list[int]] = [seed, *([seed, epoch] for epoch in range(1, epochs))]
    return np.concatenate([np.random.default_rng(each).permutation(starts) for each in seeds])


@dataclass(frozen=True, kw_only=True)
class PartWindows:
    """Windows of one part of a mixture: its first token in the training tokens, and how many of all windows a run may read."""

    first_token: int
    windows: int
    read: int


def mixed_window_starts(
    parts: Mapping[str, PartWindows], phases: Sequence[tuple[int, Mapping[str, float]]], *, seq_len: int, seed: int
) -> NDArray[np.int64]:
    """Return the starts of the windows of a run on a mixture, whose phases are numbers of windows and weights by part.

    Every stretch of a phase has each part in proportion to its weight, to within a window. The windows of a part come in an
    order of its own, which depends on its name and `seed` alone; they are shuffled again for each pass.

    >>> halves = {"a": PartWindows(first_token=0, windows=9, read=9), "b": PartWindows(first_token=90, windows=2, read=2)}
    >>> starts = mixed_window_starts(halves, [(8, {"a": 0.75, "b": 0.25})], seq_len=10, seed=0)
    >>> (starts >= 90).tolist()
    [False, False, True, False, False, False, True, False]
    """
    turns = [_turns([weights.get(name, 0.0) for name in parts], windows) for windows, weights in phases]
    part_of = np.concatenate(turns)
    starts = np.empty(len(part_of), np.int64)
    for index, (name, part) in enumerate(parts.items()):
        places, own = np.flatnonzero(part_of == index), int(hashlib.sha256(name.encode()).hexdigest()[:16], 16)
        starts[places] = part.first_token + seq_len * _passes(part, len(places), seed=[seed, own])
    return starts


def _turns(weights: Sequence[float], windows: int) -> NDArray[np.int64]:
    """Return the part of each window: part i has its turns at times (k + 1/2) / weight i."""
    turns = [(np.arange(math.ceil(windows * weight) + 1) + 0.5) / weight if weight else np.empty(0) for weight in weights]
    parts = np.repeat(np.arange(len(weights)), [len(times) for times in turns])
    return parts[np.lexsort((parts, np.concatenate(turns)))[:windows]]


def _passes(part: PartWindows, wanted: int, *, seed: list[int]) -> NDArray[np.int64]:
    """Return the windows of as many passes over the part as `wanted` windows take, each in another order."""
    first = np.random.default_rng(seed).permutation(part.windows)[: part.read]
    more = range(1, math.ceil(wanted / max(1, part.read)))
    return np.concatenate([first, *(np.random.default_rng([*seed, each]).permutation(first) for each in more)])[:wanted]


def evaluation_window_starts(tokens: int, *, seq_len: int, windows: int) -> NDArray[np.int64]:
    """Return the starts of `windows` disjoint windows, spread evenly over the held-out tokens.

    >>> evaluation_window_starts(100, seq_len=10, windows=4).tolist()
    [0, 30, 60, 90]
    """
    require_windows(tokens, seq_len=seq_len, windows=windows)
    return np.linspace(0, tokens - seq_len, windows).round().astype(np.int64)


def require_windows(tokens: int, *, seq_len: int, windows: int) -> None:
    """Raise `DataError` if that many disjoint windows do not fit into the held-out tokens."""
    if windows * seq_len > tokens:
        raise DataError(
            f"{windows} evaluation windows of {seq_len} tokens do not fit into {tokens} held-out tokens.",
            why="Overlapping windows would count the same text twice.",
            fix="Lower evaluation.windows." if seq_len <= tokens else "Hold out more text.",
        )
