"""A log has one root, and short proofs show what stands in it: the trees of RFC 6962, by its own test vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_scaling.preregistration.log import inclusion_proof, is_included, merkle_root

# Inputs and roots of the tests of Certificate Transparency's reference implementation (google/certificate-transparency).
LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("size", range(1, 9))
def test_the_roots_are_those_of_the_reference(size: int) -> None:
    """Of one to eight leaves."""
    assert merkle_root(LEAVES[:size]).hex() == ROOTS[size - 1]


def test_the_root_of_nothing_is_the_digest_of_nothing() -> None:
    """As the RFC says."""
    assert merkle_root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


TREES = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


@given(TREES, st.data())
def test_every_leaf_has_a_proof_and_nothing_else_has(leaves: list[bytes], data: st.DataObject) -> None:
    """Not another leaf, place, size or root, nor a proof that was cut, lengthened or changed."""
    index = data.draw(st.integers(0, len(leaves) - 1))
    proof, root = inclusion_proof(leaves, index), merkle_root(leaves)
    known = {"index": index, "size": len(leaves), "proof": proof, "root": root}
    assert is_included(leaves[index], **known)
    assert len(proof) <= max(1, (len(leaves) - 1).bit_length())
    assert not is_included(leaves[index] + b"x", **known)
    assert not is_included(leaves[index], **known | {"root": root[::-1] + b"x"})
    assert not is_included(leaves[index], **known | {"proof": [*proof, root]})
    assert not is_included(leaves[index], **known | {"index": len(leaves)})
    if proof:
        assert not is_included(leaves[index], **known | {"proof": proof[:-1]})
        assert not is_included(leaves[index], **known | {"proof": [bytes(32), *proof[1:]]})


@given(TREES)
def test_an_inner_node_does_not_pass_for_a_leaf(leaves: list[bytes]) -> None:
    """Or a tree of half the size would have the same root."""
    doubled = [*leaves, *leaves]
    halves = [merkle_root(leaves), merkle_root(leaves)]
    assert merkle_root(halves) != merkle_root(doubled)
