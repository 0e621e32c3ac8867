"""The whole site: it builds strictly from a clone, and needs nothing from elsewhere."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from marin_scaling.errors import SiteError
from marin_scaling.publish.build import build_site

pytest.importorskip("material", reason="the site extra is not installed")
pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[2]


class _Fetched(HTMLParser):
    """What a page makes a browser fetch: sources of scripts, pictures and frames, stylesheets and icons; no links.

    A parser and not a pattern, because the interactive figures hold programs in which such tags are text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        fetches = {"src", "srcset", "data", "poster"} | (
            {"href"} if tag == "link" and said.get("rel") != "canonical" else set()
        )
        self.addresses += [said[name] or "" for name in fetches & said.keys()]


def test_no_page_fetches_anything(built_site: Path) -> None:
    """No script, image, frame or stylesheet comes from another host, in hand-written, generated and interactive pages."""
    pages, addresses = sorted(built_site.rglob("*.html")), []
    for page in pages:
        parser = _Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        addresses += parser.addresses
    assert len(pages) >= 20
    assert len(addresses) >= 5 * 20
    assert not [address for address in addresses if re.match(r"(https?:)?//", address)]


def test_the_forecasts_of_this_repository_stand_with_their_outcomes_without_javascript(built_site: Path) -> None:
    """Forecast, interval and observed loss are in the HTML itself, and so is the figure."""
    for folder in sorted((ROOT / "preregistrations").glob("20*")):
        page = (built_site / "generated" / "preregistrations" / f"{folder.name}.html").read_text(encoding="utf-8")
        observed = json.loads((folder / "outcome.json").read_bytes())["value"]
        assert f"<strong>{observed:.4f}</strong>" in page
        figure = f"{folder.name}.figures/forecast.svg"
        assert f'src="{figure}"' in page
        assert "observed " in (built_site / "generated" / "preregistrations" / figure).read_text(encoding="utf-8")


def test_the_first_page_shows_results_and_the_menu_has_at_most_seven_parts(built_site: Path) -> None:
    """Both figures in two sizes, three numbers, two buttons; no sidebar."""
    page = (built_site / "index.html").read_text(encoding="utf-8")
    for figure in ("generated/home.figures/law", "generated/index.figures/intervals"):
        for name in (f"{figure}.svg", f"{figure}-narrow.svg"):
            assert name in page
            assert (built_site / name).is_file()
    assert page.count("md-button") >= 2
    assert len(re.findall(r"<div><strong>", page)) == 3
    assert 5 <= page.count('class="md-tabs__item') <= 7


def _words_and_marks(svg: str) -> tuple[list[str], int]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg), svg.count("<path")


def test_the_picture_of_the_first_page_is_the_figure_of_the_first_forecast(built_site: Path) -> None:
    """The same words, numbers and number of marks; where other fonts are installed, margins differ a little."""
    drawn = built_site / "generated" / "ladders" / "quickstart.figures" / "whole.svg"
    shown = (ROOT / "site" / "assets" / "quickstart.svg").read_text(encoding="utf-8")
    assert _words_and_marks(shown) == _words_and_marks(drawn.read_text(encoding="utf-8"))


def test_the_build_leaves_the_repository_as_it_is(built_site: Path) -> None:
    """Only ignored folders are written."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    written = [".site/index.html", "site/generated/index.md"]
    ignored = subprocess.run(["git", "check-ignore", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ignored.stdout.split() == written
    assert built_site.name == ".site"


def test_a_page_with_a_broken_link_is_not_published(tmp_path: Path) -> None:
    """The page and the link are named."""
    (tmp_path / "site").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: x\ndocs_dir: site\nstrict: true\n")
    (tmp_path / "site" / "index.md").write_text("# Home\n\n[Gone](gone.md)\n")
    with pytest.raises(SiteError, match=r"'index\.md' contains a link 'gone\.md'"):
        build_site(tmp_path)
    (tmp_path / "site" / "index.md").write_text("# Home\n")
    assert build_site(tmp_path).read_text(encoding="utf-8").count("Home")
