"""The site of this repository, built once for all tests of it, in a copy."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    from marin_scaling.publish.build_site import build_site

    copy = tmp_path_factory.mktemp("site") / "repository"
    shutil.copytree(
        ROOT,
        copy,
        ignore=shutil.ignore_patterns(".git", ".*cache*", ".venv*", ".marin-scaling", "marin-quickstart", ".site", "generated"),
    )
    return build_site(copy).parent
