"""Attacks on a reader's browser: text of untrusted files that is to become markup, a script or a link of the site.

A repository in which every such text is an attack is built by both builders; whatever its pages hold that those of a harmless
repository do not is an attack that succeeded. Chromium then opens the pages, touches the figures and searches.
"""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hostile_site import ATTACKS, build_repository
from made_once import made_once

from marin_scaling.publish.build import build_site

pytest.importorskip("material", reason="the site extra is not installed")
pytestmark = pytest.mark.site

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
ADDRESSES = {"href", "src", "action", "formaction", "data", "poster", "srcset", "background", "ping", "xlink:href"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The built sites of a harmless and of a hostile repository, with the same number of everything."""
    folder = made_once("injection", _build_both, factory=tmp_path_factory)
    return folder / "harmless" / ".site", folder / "hostile" / ".site"


def _build_both(folder: Path) -> None:
    for name in ("harmless", "hostile"):
        (folder / name).mkdir(parents=True)
        build_site(build_repository(folder / name, hostile=name == "hostile"))


@pytest.fixture(scope="module")
def by_zensical(places: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same pages as Zensical builds them."""
    pytest.importorskip("zensical", reason="the dev extra is not installed")

    def build(folder: Path) -> None:
        for site in places:
            copy = folder / site.parent.name
            shutil.copytree(site.parent, copy, ignore=shutil.ignore_patterns(".site"))
            done = subprocess.run(["zensical", "build"], cwd=copy, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

    folder = made_once("injection-zensical", build, factory=tmp_path_factory)
    return folder / "harmless" / ".site", folder / "hostile" / ".site"


class _Active(HTMLParser):
    """What of a page a browser obeys, each as a line that does not name the page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._script: str | None = None
        self._text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(f"<{tag}>")
        said = {name: value or "" for name, value in attrs}
        if tag == "script" and "src" not in said:
            self._script, self._text = said.get("type", "program"), ""
        for name, value in said.items():
            self.found.add(f"<{tag} {name}>")
            if name.startswith("on") or name in ("style", "http-equiv", "srcdoc"):
                self.found.add(f"<{tag} {name}={value}>")
            if name in ADDRESSES:
                scheme = re.match(r"[\s\x00-\x20]*([a-z][a-z0-9+.-]*):", value, re.IGNORECASE)
                self.found.add(f"<{tag} {name}={scheme[1].lower() if scheme else ''}:>")
            if tag == "script" and name == "src":
                self.found.add(f"script {value.split('/')[-1]}")

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if self._script == "application/json":
            json.loads(self._text)
        elif self._script is not None:
            self.found.add(f"program {re.sub(r'[.]{1,2}(/[.]{2})*', '.', self._text)}")
        if tag == "script":
            self._script = None


def _active(site: Path) -> set[str]:
    return set().union(*(_Active(path).found for path in site.rglob("*.html")))


def _pages(site: Path, folder: str) -> list[Path]:
    return sorted((site / "generated" / folder).rglob("*.html"))


@pytest.mark.parametrize("builder", ["places", "by_zensical"])
def test_no_page_holds_markup_that_a_harmless_site_has_not(builder: str, request: pytest.FixtureRequest) -> None:
    """No other tag, attribute, event handler, style, scheme or script, in pages of both builders."""
    harmless, hostile = request.getfixturevalue(builder)
    assert len(list(hostile.rglob("*.html"))) == len(list(harmless.rglob("*.html"))) >= 2 * len(ATTACKS)
    assert _active(hostile) - _active(harmless) == set()
    assert not [line for line in _active(hostile) if "javascript:" in line]


@pytest.mark.parametrize("builder", ["places", "by_zensical"])
def test_a_title_stands_in_the_head_as_it_was_written(builder: str, request: pytest.FixtureRequest) -> None:
    """The page is named by the attack's own text, decoded once."""
    _, hostile = request.getfixturevalue(builder)
    for number, attack in enumerate(ATTACKS):
        source = (hostile / "generated" / "experiments" / f"e{number}.html").read_text(encoding="utf-8")
        titles = re.findall(r"<title>(.*?)</title>", source, re.DOTALL)
        assert len(titles) == source.count("<title") == 1
        shown = titles[0].rpartition(" - ")[0]
        assert not set(shown) & set('<>"`{'), attack
        assert ElementTree.fromstring(f"<t>{shown}</t>").text == attack.replace("%s", "title")


def test_every_attack_stands_on_its_page(places: tuple[Path, Path]) -> None:
    """Nothing is tested that was refused before: the forecast, the ladders, the submissions and experiments are shown."""
    _, hostile = places
    (forecast,) = (path for path in _pages(hostile, "preregistrations") if path.name != "interactive.html")
    assert "Refused" not in forecast.read_text(encoding="utf-8")
    for folder, least in (("experiments", len(ATTACKS)), ("speedrun", len(ATTACKS)), ("speedrun-records", 1), ("ladders", 5)):
        pages = [path for path in _pages(hostile, folder) if "PWNED" in path.read_text(encoding="utf-8")]
        assert len(pages) >= least, folder


def test_no_picture_holds_markup_that_a_harmless_one_has_not(places: tuple[Path, Path]) -> None:
    """SVG is read by a browser as a document of its own."""
    tags: list[set[str]] = []
    for site in places:
        pictures = [ElementTree.parse(path) for path in (site / "generated").rglob("*.svg")]
        assert len(pictures) > len(ATTACKS)
        tags.append({f"{each.tag} {name}" for picture in pictures for each in picture.iter() for name in ("", *each.attrib)})
    assert tags[1] - tags[0] == set()
    assert not [tag for tag in tags[1] if re.search(r"}(script|foreignObject|a|use) | (on\w+|(.*})?href)$", tag)]


def test_data_files_are_read_as_what_they_are(places: tuple[Path, Path]) -> None:
    """JSON parses, and the feed is XML without markup in it."""
    _, hostile = places
    files = list((hostile / "generated").rglob("*.json"))
    assert len(files) > 2 * len(ATTACKS)
    for path in files:
        json.loads(path.read_bytes())
    feed = ElementTree.parse(hostile / "generated" / "feed.xml")
    assert {each.tag.rpartition("}")[2] for each in feed.iter()} <= set(
        ["feed", "title", "subtitle", "id", "updated", "author", "name", "entry", "summary", "link"]
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the dev extra is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as tools:
        opened = tools.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


class _Visit:
    """A page of Chromium that knows what it was made to ask for, and whether an attack ran in it or in a frame of it."""

    def __init__(self, browser: Any) -> None:
        self.page = browser.new_page()
        self.asked: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def require_nothing_ran(self, path: object) -> None:
        ran = [frame.evaluate("window.PWNED || ''") for frame in self.page.frames]
        assert not any(ran), (path, ran)
        assert not self.dialogs, path
        elsewhere = [url for url in self.asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
        assert not elsewhere, (path, elsewhere)


@pytest.fixture
def visit(browser: Any) -> Iterator[_Visit]:
    made = _Visit(browser)
    yield made
    made.page.close()


@pytest.mark.browser
@pytest.mark.parametrize("folder", ["experiments", "speedrun", "ladders", "preregistrations", "."])
def test_nothing_runs_when_a_page_is_opened(places: tuple[Path, Path], visit: _Visit, folder: str) -> None:
    """Every page of a folder is opened, each part of it that opens is opened, and no request leaves the site."""
    pages = [path for path in _pages(places[1], folder) if folder != "." or path.parent.name == "generated"]
    assert pages
    for path in pages:
        visit.page.goto(path.as_uri(), wait_until="load")
        visit.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        visit.require_nothing_ran(path)


@pytest.mark.browser
def test_nothing_runs_when_a_pointer_touches_a_figure(places: tuple[Path, Path], visit: _Visit) -> None:
    """The names of runs stand in the words beside the pointer, and are words there."""
    seen = 0
    for path in sorted((places[1] / "generated").rglob("interactive.html")):
        visit.page.goto(path.as_uri())
        visit.page.wait_for_selector("svg", timeout=60_000)
        marks = visit.page.locator(".mark-symbol path")
        for number in range(0, marks.count(), 9):
            marks.nth(number).hover(force=True, timeout=5_000)
            seen += "PWNED" in (visit.page.evaluate("document.querySelector('#vg-tooltip-element')?.innerText") or "")
        visit.require_nothing_ran(path)
    assert seen >= 3


@pytest.mark.browser
@pytest.mark.parametrize("words", ["onerror", "title", "danger", "src"])
def test_nothing_runs_when_a_search_finds_an_attack(places: tuple[Path, Path], visit: _Visit, words: str) -> None:
    """Titles and text of what is found are put into the page by a program of the theme."""
    visit.page.goto((places[1] / "index.html").as_uri())
    visit.page.keyboard.press("/")
    visit.page.keyboard.type(words)
    is_shown = "document.querySelectorAll('.md-search-result__item').length > 3"
    visit.page.wait_for_function(is_shown, timeout=60_000)
    for more in visit.page.locator(".md-search-result__more summary").all()[:5]:
        more.click()
    visit.require_nothing_ran(words)


@pytest.mark.browser
def test_nothing_runs_when_tables_are_sorted_filtered_and_compared(places: tuple[Path, Path], visit: _Visit) -> None:
    """The programs of the index pages build their own elements from the attacks."""
    visit.page.goto((places[1] / "generated" / "experiments" / "index.html").as_uri())
    visit.page.fill("#table-filter", "PWNED")
    for button in visit.page.locator("th button").all():
        button.click()
    visit.require_nothing_ran("experiments")
    visit.page.goto((places[1] / "generated" / "speedrun" / "index.html").as_uri())
    for summary in visit.page.locator(".board-controls summary").all():
        summary.click()
    for box in visit.page.locator(".board-columns input").all():
        box.check(force=True)
    visit.page.fill(".board-controls input[type=search]", "PWNED")
    visit.require_nothing_ran("speedrun")
