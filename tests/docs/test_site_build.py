"""The whole site: it builds strictly from a clone, and needs nothing from elsewhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("material", reason="the site extra is not installed")
pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]
REMOTE_ASSET = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']https?://|<link[^>]+rel=["']stylesheet["'][^>]+href=["']https?://"""
)


def test_no_page_fetches_anything(built_site: Path) -> None:
    """No script, image, frame or stylesheet comes from another host, in hand-written, generated and interactive pages."""
    pages = sorted(built_site.rglob("*.html"))
    assert len(pages) >= 20
    assert not [page.name for page in pages if REMOTE_ASSET.search(page.read_text(encoding="utf-8").split("<body", 1)[0])]


def test_the_forecasts_of_this_repository_stand_with_their_outcomes_without_javascript(built_site: Path) -> None:
    """Forecast, interval and observed loss are in the HTML itself, and so is the figure."""
    for folder in sorted((ROOT / "preregistrations").glob("20*")):
        page = (built_site / "generated" / "preregistrations" / f"{folder.name}.html").read_text(encoding="utf-8")
        assert "was observed" in page
        assert f"{folder.name}.svg" in page
        assert (built_site / "generated" / "preregistrations" / f"{folder.name}.svg").stat().st_size > 10_000


def test_the_picture_of_the_first_page_is_the_figure_of_the_first_forecast(built_site: Path) -> None:
    """Byte for byte; `marin-scale site build` draws it anew."""
    drawn = built_site / "generated" / "preregistrations" / "2026-11-21-quickstart.svg"
    assert (ROOT / "site" / "assets" / "quickstart.svg").read_bytes() == drawn.read_bytes()


def test_the_build_leaves_the_repository_as_it_is(built_site: Path) -> None:
    """Only ignored folders are written."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    ignored = subprocess.run(
        ["git", "check-ignore", ".site", "site/generated"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ignored.stdout.split() == [".site", "site/generated"]
    assert built_site.name == ".site"
