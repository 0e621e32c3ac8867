"""What is attacked: a signed forecast with its ladder, in a registry where every attacker may sign, as themselves."""

from pathlib import Path

import pytest
from forgery import BOB, CAROL, CONDITION, MALLORY, allow
from registration_factory import DUE, make_registration

from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.register import Registration


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository: its registry is in `preregistrations`, its runs are in `runs`."""
    return tmp_path


@pytest.fixture
def registration(root: Path) -> Registration:
    """Ada's forecast, which Bob is asked to review and Carol resolves; these two and Mallory may sign, too."""
    promise = Promise(due=DUE, resolver=CAROL, reviewers=(BOB,), void_if=(CONDITION,))
    registration = make_registration(root, promise=promise)
    allow(root / "preregistrations", BOB, CAROL, MALLORY)
    return registration


@pytest.fixture
def folder(registration: Registration) -> Path:
    """Its folder."""
    return registration.folder


@pytest.fixture
def registry(registration: Registration) -> Path:
    """The folder above it, with the log and the list of signers."""
    return registration.folder.parent
