"""Merkle trees as in RFC 6962: one digest for a whole log, and short proofs that a line stands in it.

Leaves and inner nodes are hashed under different first bytes, so that neither passes for the other. What the leaves mean is
not known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The root of the tree over `leaves` (RFC 6962, section 2.1); that of none is the digest of nothing.

    >>> merkle_root([b""]).hex()[:16]
    '6e340b9cffb37a98'
    """
    return _root([_leaf(leaf) for leaf in leaves]) if leaves else hashlib.sha256(b"").digest()


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The digests that lead from the leaf at `index` to the root, nearest first (section 2.1.1)."""
    hashed = [_leaf(leaf) for leaf in leaves]
    return _path(hashed, index)


def is_included(leaf: bytes, *, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows `leaf` at `index` of a tree with `size` leaves and this root (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    found, place, last = _leaf(leaf), index, size - 1
    for sibling in proof:
        if last == 0:
            return False
        if place % 2 or place == last:
            found = _node(sibling, found)
            while place % 2 == 0 and place:
                place, last = place // 2, last // 2
        else:
            found = _node(found, sibling)
        place, last = place // 2, last // 2
    return last == 0 and found == root


def _root(hashed: Sequence[bytes]) -> bytes:
    if len(hashed) == 1:
        return hashed[0]
    left = _split(len(hashed))
    return _node(_root(hashed[:left]), _root(hashed[left:]))


def _path(hashed: Sequence[bytes], index: int) -> list[bytes]:
    if len(hashed) == 1:
        return []
    left = _split(len(hashed))
    if index < left:
        return [*_path(hashed[:left], index), _root(hashed[left:])]
    return [*_path(hashed[left:], index - left), _root(hashed[:left])]


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def _leaf(content: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + content).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
