"""The speedrun board in a real browser: it sorts, filters, switches its axis, compares, and keeps all of it in the address."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
TRACK = "cpu-bytes"
BOARD = f".board-live[data-track={TRACK}]"
FILTER, COUNT, ROWS = (
    f"{BOARD} {each}" for each in (".board-controls input[type=search]", ".board-controls output", ".board-table tbody tr")
)


@pytest.fixture
def page(browser: Any, built_site: Path) -> Iterator[Any]:
    """The board, opened from its folder: no server is needed."""
    made = browser.new_page(viewport={"width": 1440, "height": 900})
    made.goto((built_site / "generated/speedrun/index.html").as_uri())
    made.wait_for_selector(ROWS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def entries(built_site: Path) -> list[dict[str, Any]]:
    """What is on it, by its data."""
    rows: list[dict[str, Any]] = json.loads((built_site / "generated/speedrun/board.json").read_bytes())["entries"]
    return [row for row in rows if row["track"] == TRACK]


def column(page: Any, label: str) -> list[str]:
    """The cells below a heading."""
    heads = [text.rstrip(" ▴▾") for text in page.locator(f"{BOARD} .board-table thead th").all_inner_texts()]
    place = heads.index(label) + 1
    return list(page.locator(f"{ROWS} td:nth-child({place})").all_inner_texts())


def head(page: Any, label: str) -> Any:
    """The button in a heading."""
    return page.locator(f"{BOARD} .board-table thead button", has_text=label)


def test_all_entries_are_there_from_the_lowest_loss_on(page: Any, entries: list[dict[str, Any]]) -> None:
    """As in the table without scripts."""
    losses = sorted(entry["bits_per_byte"] for entry in entries)
    assert column(page, "bits per byte") == [f"{loss:.4f}" for loss in losses]
    assert page.inner_text(COUNT) == f"{len(entries)} of {len(entries)}"


def test_a_heading_sorts_and_sorts_back(page: Any, entries: list[dict[str, Any]]) -> None:
    """And says so to those who do not see the arrow."""
    head(page, "model FLOPs").click()
    by_cost = sorted(entries, key=lambda entry: entry["model_flops"])
    assert column(page, "submission")[0] == by_cost[0]["name"]
    assert page.locator(f"{BOARD} [aria-sort=ascending]").inner_text().startswith("model FLOPs")
    head(page, "model FLOPs").click()
    assert column(page, "submission")[0] == by_cost[-1]["name"]
    assert page.locator(f"{BOARD} [aria-sort=descending]").inner_text().startswith("model FLOPs")


def test_words_and_fields_filter(page: Any, entries: list[dict[str, Any]]) -> None:
    """All terms hold at once."""
    page.fill(FILTER, "submission:moe model_flops<1e11")
    wanted = [entry for entry in entries if "moe" in entry["name"] and entry["model_flops"] < 1e11]
    assert len(wanted) not in (0, len(entries))
    assert page.inner_text(COUNT) == f"{len(wanted)} of {len(entries)}"
    assert set(column(page, "submission")) == {entry["name"] for entry in wanted}
    page.fill(FILTER, "no such entry")
    assert page.inner_text(COUNT) == f"0 of {len(entries)}"


def test_another_axis_of_cost_has_another_front(page: Any, entries: list[dict[str, Any]]) -> None:
    """The front of the figure is that of the data, counted by the tool."""
    for axis in ("model FLOPs", "chip-seconds", "parameters"):
        page.select_option(f"{BOARD} .board-controls select", label=axis)
        standing = [entry for entry in entries if axis in entry["on_front"]]
        page.wait_for_selector(f"{BOARD} .board-figure[aria-label*='{axis}']")
        assert page.locator(f"{BOARD} .front_marks path").count() == len(standing)


def test_the_address_brings_all_of_it_back(page: Any, browser: Any) -> None:
    """Filter, order, axis, columns, what is compared: a link to what one sees."""
    page.fill(FILTER, "quickstart")
    page.select_option(f"{BOARD} .board-controls select", label="chip-seconds")
    head(page, "parameters").click()
    page.locator(f"{BOARD} .board-controls summary", has_text="Columns").click()
    page.locator(f"{BOARD} .board-columns label", has_text="epochs").locator("input").check()
    for place in (0, 1):
        page.locator(f"{ROWS} input").nth(place).check()
    again = browser.new_page()
    again.goto(page.evaluate("location.href"))
    again.wait_for_selector(ROWS)
    for selector in (COUNT, f"{BOARD} .board-table thead", f"{BOARD} .board-table tbody", f"{BOARD} .board-compared"):
        assert again.locator(selector).first.inner_text() == page.locator(selector).first.inner_text()
    assert again.locator(f"{BOARD} .board-controls select").input_value() == "chip_seconds"
    again.close()


def test_two_that_are_compared_show_where_they_differ(page: Any) -> None:
    """And nothing in which they are the same."""
    page.fill(FILTER, "target")
    for place in (0, 1):
        page.locator(f"{ROWS} input").nth(place).check()
    shown = page.locator(f"{BOARD} .board-compared th").all_inner_texts()
    assert "bits per byte" in shown
    assert "by" not in shown  # all are by one author


def test_the_keyboard_reaches_the_filter_the_axis_and_every_heading(page: Any) -> None:
    """By the tab key alone, and Enter sorts."""
    page.locator(FILTER).focus()
    reached = []
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.slice(0, 40)"))
    assert any("model FLOPs" in text for text in reached)
    head(page, "submission").focus()
    page.keyboard.press("Enter")
    assert page.locator(f"{BOARD} [aria-sort=ascending]").inner_text().startswith("submission")
    assert "submission" in page.evaluate("document.activeElement.textContent")


@pytest.mark.parametrize("kind", ["CSV", "JSON", "SVG", "PNG"])
def test_what_is_seen_can_be_kept(page: Any, tmp_path: Path, kind: str) -> None:
    """The filtered rows, and the figure."""
    page.fill(FILTER, "submission:moe")
    page.locator(f"{BOARD} .board-controls summary", has_text="Download").click()
    with page.expect_download() as download:
        page.locator(f"{BOARD} .board-columns button", has_text=kind).click()
    path = tmp_path / "kept"
    download.value.save_as(path)
    beginnings = {"CSV": b"name,authors,bits_per_byte", "JSON": b"[\n {", "SVG": b"<svg", "PNG": b"\x89PNG"}
    assert path.read_bytes().startswith(beginnings[kind])
    if kind == "JSON":
        assert all("moe" in row["name"] for row in json.loads(path.read_bytes()))


def test_without_scripts_the_table_and_the_figure_are_there(
    browser: Any, built_site: Path, entries: list[dict[str, Any]]
) -> None:
    """Every entry, with a link to its page."""
    context = browser.new_context(java_script_enabled=False)
    still = context.new_page()
    still.goto((built_site / "generated/speedrun/index.html").as_uri())
    assert len(entries) in [each.locator("tbody tr").count() for each in still.locator("table").all()]
    assert still.locator(f"img[src$='{TRACK}.figures/front.svg']").count() == 1
    assert still.locator("table a[href$='.html']").count() >= len(entries)
    context.close()
