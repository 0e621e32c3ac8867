"""The built site in a real browser: on a light phone and a dark desktop."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin_scaling.publish.build import serve_site

pytestmark = pytest.mark.browser

PAGES = [
    "index.html",
    "tutorial/quickstart.html",
    "reference/cli.html",
    "reference/python.html",
    "generated/index.html",
    "generated/ladders/index.html",
    "generated/speedrun/index.html",
    "generated/speedrun-records/marin.html",
    "generated/speedrun/bytes-moe~target-2.4e12-width-40.html",
    "generated/speedrun/cpu~dense-24-batch-8.html",
    "generated/experiments/index.html",
    "generated/experiments/bytes-moe.html",
    "generated/ladders/delphi.html",
    "generated/preregistrations/2026-11-26-quickstart.html",
    "generated/preregistrations/2026-11-26-bytes-moe.html",
]
LOOKS = {"phone, light": (390, "light"), "desktop, dark": (1440, "dark")}


@pytest.fixture(scope="module")
def address(built_site: Path) -> Iterator[str]:
    """The site as `marin-scale site serve` shows it."""
    with serve_site(built_site, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("width", "scheme"), LOOKS.values(), ids=LOOKS.keys())
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_shows_its_figures_and_says_nothing_to_the_console(
    address: str, browser: Any, name: str, width: int, scheme: str
) -> None:
    """No sideways scrolling of the page, every picture loaded, no error, nothing fetched from elsewhere."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{address}/{name}")
    page.wait_for_load_state("networkidle")
    widths = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    pictures = page.evaluate("Array.from(document.images).map(image => [image.src, image.complete && image.naturalWidth])")
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name.replace('/', '_')}-{width}-{scheme}.png", full_page=True)
    page.close()
    assert widths[0] <= widths[1], f"the page is {widths[0] - widths[1]} pixels too wide"
    assert all(natural for _, natural in pictures), pictures
    assert not errors
    assert all(request.startswith((address, "data:", "blob:")) for request in requests), requests


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_fault(address: str, browser: Any, name: str, scheme: str) -> None:
    """Contrast, names, roles, order: what axe-core calls serious or critical."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the dev extra is not installed")
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
    page.goto(f"{address}/{name}")
    page.wait_for_load_state("networkidle")
    found = axe.Axe().run(page).response["violations"]
    page.close()
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in serious] == []


@pytest.mark.parametrize("served", [True, False], ids=["served", "from its folder"])
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("bootstrap", "Lab book"),
        ("2026-11-26-bytes-moe", "2026-11-26-bytes-moe"),
        ("dense-24-batch-8", "cpu/dense-24-batch-8"),
        ("orthogonality", "Router orthogonality loss"),
    ],
)
def test_search_finds_pages_runs_forecasts_and_experiments(
    address: str, built_site: Path, browser: Any, words: str, found: str, served: bool
) -> None:
    """With a server and without one."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{address}/index.html" if served else (built_site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type(words)
    is_shown = "found => document.querySelector('.md-search-result').innerText.includes(found)"
    page.wait_for_function(is_shown, arg=found, timeout=120_000)  # the first words that are typed have results of their own
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opened_from_its_folder_needs_no_server(built_site: Path, browser: Any, name: str) -> None:
    """Its style, its text and its pictures are there, and it says nothing to the console."""
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((built_site / name).as_uri())
    assert page.evaluate("Array.from(document.images).every(image => image.complete && image.naturalWidth > 0)")
    assert page.evaluate("getComputedStyle(document.querySelector('.md-grid')).maxWidth") != "none"
    assert page.inner_text("h1")
    page.wait_for_load_state("networkidle")
    page.close()
    assert not errors


def test_the_figures_of_a_forecast_can_be_moved_about_in(built_site: Path, browser: Any) -> None:
    """The interactive figure draws itself from its own file, without network."""
    page = browser.new_page()
    page.goto((built_site / "generated" / "ladders" / "quickstart.figures" / "interactive.html").as_uri())
    page.wait_for_selector("svg", timeout=120_000)
    assert page.locator("svg path").count() > 20
    assert "quickstart" in page.inner_text("h1")
    page.locator("nav a").click()
    assert page.url == (built_site / "generated" / "ladders" / "quickstart.html").as_uri()
    page.close()


def test_an_interactive_figure_is_dark_where_the_site_is(built_site: Path, browser: Any) -> None:
    """The reader's choice on the site counts, and without one that of the system."""
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    figure = (built_site / "generated" / "index.figures" / "interactive.html").as_uri()
    for chosen, is_dark in ((None, False), ("slate", True)):
        page.goto((built_site / "index.html").as_uri())
        if chosen:
            page.evaluate("scheme => __md_set('__palette', {index: 1, color: {scheme}})", chosen)
        page.goto(figure)
        assert page.evaluate("document.documentElement.classList.contains('dark')") is is_dark
    context.close()


def test_the_slider_of_a_law_says_what_a_budget_buys(built_site: Path, browser: Any) -> None:
    """From the folder, by keyboard: at its end stands what the table's last row says."""
    page = browser.new_page()
    page.goto((built_site / "generated" / "ladders" / "bytes-dense.html").as_uri())
    slider = page.get_by_label("Budget")
    slider.focus()
    page.keyboard.press("End")
    row = page.locator("table", has_text="beyond the largest").locator("tr").last.inner_text().split("\t")
    said = page.locator("[data-law] output").inner_text()
    assert f"loss {row[2]}, 90 % interval {row[3]}" in said
    assert f"{row[0]} FLOPs" in said
    page.keyboard.press("Home")
    assert "within the ladder" in page.locator("[data-law] output").inner_text()
    assert "FLOPs (within the ladder)" in slider.get_attribute("aria-valuetext")
    assert "learning rate" in page.locator("[data-law] output").inner_text()
    page.get_by_label("Sustained FLOP/s").fill("1e9")
    page.get_by_label("Price per hour").fill("36")
    flops, dearest = float(row[0]), page.locator("[data-law] output div").last
    slider.press("End")
    assert "days" in dearest.inner_text()
    assert f"cost {float(f'{flops / 1e9 / 100:.3g}'):,.0f}" in dearest.inner_text()
    page.close()


def test_the_main_content_needs_no_javascript(built_site: Path, browser: Any) -> None:
    """With scripts switched off, table and verdict are there."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((built_site / "generated" / "index.html").as_uri())
    assert page.locator("table tbody tr").count() >= 2
    assert "2.0279" in page.inner_text("table")
    context.close()
