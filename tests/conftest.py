"""Settings of all tests: none is timed, so hypothesis has no deadline; tiny ladders of one session share compiled programs."""

import os
import shutil
import tempfile

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Before processes that test in parallel are started, which inherit it."""
    if not hasattr(config, "workerinput"):
        os.environ["MARIN_SCALING_TESTS_COMPILED"] = tempfile.mkdtemp(prefix="marin-scaling-compiled-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Once all have ended."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["MARIN_SCALING_TESTS_COMPILED"], ignore_errors=True)
