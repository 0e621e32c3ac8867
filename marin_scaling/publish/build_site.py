"""Build a repository's site: generated pages first, then mkdocs, strictly, into `.site/`.

The pages work from a folder without a server. Needs the `site` extra; nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from marin_scaling.errors import SiteError, UsageError, missing_extra
from marin_scaling.publish.pages import write_generated_pages

SITE_DIR = Path(".site")


def build_site(root: Path) -> Path:
    """Build the site of the repository at `root` and return its first page.

    `UsageError` where there is no `mkdocs.yml`, `MissingExtra` without mkdocs, `SiteError` when mkdocs refuses a page.
    """
    root = root.resolve()
    if not (root / "mkdocs.yml").is_file():
        raise UsageError(
            f"{root / 'mkdocs.yml'} is not there.",
            why="A site is built from a repository's mkdocs.yml and its folder site/.",
            fix="Go to the root of the repository, or make one: marin-scale init",
        )
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        raise missing_extra("site", needed_for="building a site")
    write_generated_pages(root)
    _run_mkdocs(root)
    return root / SITE_DIR / "index.html"


def _run_mkdocs(root: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(root / SITE_DIR)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise SiteError(
            ("mkdocs refused to build the site:", *said[-20:]),
            why="A page with a broken link or a missing file is not published.",
            fix="Mend the page that is named, and run again: marin-scale site build",
        )
