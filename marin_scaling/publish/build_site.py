"""Build a repository's site: generated pages first, then mkdocs, strictly, into `.site/`.

The pages work from a folder without a server. Needs the `site` extra; nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

from marin_scaling.child_process import child_environment, python_module
from marin_scaling.errors import SiteError, UsageError, missing_extra
from marin_scaling.limits import SITE_SECONDS
from marin_scaling.publish.pages import write_generated_pages
from marin_scaling.publish.site_settings import SETTINGS_NAME, SITE_DIR, require_plain_settings
from marin_scaling.regular_files import DATA_FOLDERS, SITE_SETTINGS, is_present, require_regular_tree

_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONHASHSEED", "SOURCE_DATE_EPOCH")


def build_site(root: Path) -> Path:
    """Build the site of the repository at `root` and return its first page.

    `UsageError` where there is no `mkdocs.yml`, `MissingExtra` without mkdocs, `SiteError` when mkdocs refuses a page, or where
    the settings could run code of the repository or read files outside of it.
    """
    root = root.resolve()
    if not is_present(root / SITE_SETTINGS):
        raise UsageError(
            f"{root / 'mkdocs.yml'} is not there.",
            why="A site is built from a repository's mkdocs.yml and its folder site/.",
            fix="Go to the root of the repository, or make one: marin-scale init",
        )
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        raise missing_extra("site", needed_for="building a site")
    require_regular_tree(root / name for name in (*DATA_FOLDERS, SITE_SETTINGS, str(SITE_DIR)))
    require_plain_settings(root)
    write_generated_pages(root)
    _run_mkdocs(root)
    return root / SITE_DIR / "index.html"


def _environment() -> dict[str, str]:
    """Return what mkdocs needs of this process's variables: none of them is a secret."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith("LC_")}
    return child_environment({**kept, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"})


def _run_mkdocs(root: Path) -> None:
    command = [*python_module("mkdocs"), "build", "--strict"]
    command += ["--config-file", str(root / SETTINGS_NAME), "--site-dir", str(root / SITE_DIR)]
    try:
        done = subprocess.run(
            command, cwd=root, env=_environment(), capture_output=True, text=True, check=False, timeout=SITE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise SiteError(
            f"mkdocs did not build the site in {SITE_SECONDS} s, and was stopped.",
            why="A page of some kilobytes can take Markdown hours, such as one with very many open brackets.",
            fix="Take away the pages in site/ that changed last, one after the other, and run again: marin-scale site build",
        ) from error
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise SiteError(
            ("mkdocs refused to build the site:", *said[-20:]),
            why="A page with a broken link or a missing file is not published.",
            fix="Mend the page that is named, and run again: marin-scale site build",
        )
