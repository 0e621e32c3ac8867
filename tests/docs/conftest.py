"""The site of this repository, built once for all tests of it, in a copy; and a browser to look at it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    from marin_scaling.publish.build import build_site

    copy = tmp_path_factory.mktemp("site") / "repository"
    shutil.copytree(
        ROOT,
        copy,
        ignore=shutil.ignore_patterns(".git", ".*cache*", ".venv*", ".marin-scaling", "marin-quickstart", ".site", "generated"),
    )
    return build_site(copy).parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless Chromium for all pages of a module."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the dev extra is not installed")
    pytest.importorskip("material", reason="the site extra is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()
