"""The site of this repository, built once for all tests of it, in a copy; and a browser to look at it."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_once import made_once

ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    return made_once("site", build_copy, factory=tmp_path_factory) / ".site"


def build_copy(copy: Path) -> None:
    """Build the site of a copy of this repository."""
    from marin_scaling.publish.build import build_site

    left_out = (".git", ".*cache*", ".venv*", ".marin-scaling", "marin-quickstart", ".site", "generated")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*left_out))
    build_site(copy)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless Chromium for a module: while it is open, asyncio is busy and nothing can be trained in this process."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the dev extra is not installed")
    pytest.importorskip("material", reason="the site extra is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()
