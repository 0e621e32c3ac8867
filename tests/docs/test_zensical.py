"""The site is built by Zensical, too: the same tree, strictly, with the same pages."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="the dev extra is not installed")
pytestmark = pytest.mark.site


def test_zensical_builds_the_same_pages(built_site: Path, tmp_path: Path) -> None:
    """From the same mkdocs.yml and the same generated pages, without a warning."""
    repository = built_site.parent
    for name in ("site", "ladders"):
        shutil.copytree(repository / name, tmp_path / name)
    shutil.copy(repository / "mkdocs.yml", tmp_path)
    done = subprocess.run(["zensical", "build", "--strict"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [{path.relative_to(site) for path in site.rglob("*.html")} for site in (built_site, tmp_path / ".site")]
    assert len(pages[0]) > 150
    assert pages[0] == pages[1]
