"""Fixtures of tests that compare a branch with main."""

from pathlib import Path

import pytest
from git_repository import branch_off
from registration_factory import make_registration


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose branch main has one preregistration; the current directory is on a branch of it."""
    make_registration(tmp_path)
    branch_off(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
