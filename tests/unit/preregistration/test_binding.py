"""The run carries its forecast."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registration_factory import run_spec, target_spec

from marin_scaling.canonical_json import load_canonical
from marin_scaling.errors import StatementError
from marin_scaling.preregistration.register import bound_spec, unbound_spec
from marin_scaling.preregistration.statement import bound_digest

STATEMENT = b'{\n "promise": 2.5\n}\n'


def test_the_run_holds_the_digest_and_a_64_bit_seed():
    """Both follow from the exact bytes of the statement and from nothing else."""
    bound = bound_spec(target_spec(), statement=STATEMENT)
    digest = hashlib.sha256(STATEMENT).digest()
    assert bound.statement_sha256 == digest.hex()
    assert bound.data_order_seed == int.from_bytes(digest[:8], "big")


def test_a_bound_spec_is_a_spec_that_can_be_written_and_read():
    """The largest seed, too, passes the format's own check."""
    bound = bound_spec(target_spec(), statement=STATEMENT)
    assert type(bound).model_validate(load_canonical(bound.to_bytes(), name="spec.json")) == bound


def test_binding_twice_to_the_same_statement_is_the_same_run():
    """An interrupted tool that binds again finds its run again."""
    bound = bound_spec(target_spec(), statement=STATEMENT)
    assert bound_spec(bound, statement=STATEMENT) == bound
    assert unbound_spec(bound) == target_spec()


def test_a_bound_run_cannot_answer_another_statement():
    """Replay of a run under a second forecast is refused."""
    with pytest.raises(StatementError, match="cannot answer"):
        bound_spec(bound_spec(target_spec(), statement=STATEMENT), statement=STATEMENT + b" ")


def test_a_rung_is_no_target():
    """The runs that a forecast is made from cannot answer it."""
    with pytest.raises(StatementError, match="role 'rung'"):
        bound_spec(run_spec(), statement=STATEMENT)


def test_the_digest_can_be_told_without_the_spec_class():
    """`verify` computes the run's name from the file alone, and `train` from the spec: the same name."""
    target = load_canonical(target_spec().to_bytes(), name="target.json")
    assert bound_digest(target, statement=STATEMENT) == bound_spec(target_spec(), statement=STATEMENT).digest


@given(st.integers(0, len(STATEMENT) - 1), st.integers(1, 255))
def test_any_flipped_byte_of_the_statement_is_another_run(index, mask):
    """Neither the digest nor the seed nor the run's name survives an edit."""
    edited = bytearray(STATEMENT)
    edited[index] ^= mask
    one, other = bound_spec(target_spec(), statement=STATEMENT), bound_spec(target_spec(), statement=bytes(edited))
    assert one.digest != other.digest
    assert one.data_order_seed != other.data_order_seed
