"""The index of experiments in a real browser: words and facets filter, headings sort, the address brings it back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
COUNT = ".table-controls output"


@pytest.fixture
def page(browser: Any, built_site: Path) -> Iterator[Any]:
    """The index, opened from its folder: no server is needed."""
    made = browser.new_page(viewport={"width": 1440, "height": 900})
    made.goto((built_site / "generated/experiments/index.html").as_uri())
    made.wait_for_selector(COUNT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def listed(built_site: Path) -> list[dict[str, Any]]:
    """What is on it, by its data."""
    lines = (built_site / "generated/experiments/experiments.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def titles(page: Any) -> list[str]:
    """The titles of the rows that are shown."""
    return list(page.locator("tbody tr:visible td:nth-child(2) a").all_inner_texts())


def test_all_of_them_are_there(page: Any, listed: list[dict[str, Any]]) -> None:
    """As in the table without scripts."""
    assert sorted(titles(page)) == sorted(each["title"] for each in listed)
    assert page.inner_text(COUNT) == f"{len(listed)} of {len(listed)}"


def test_a_facet_and_words_filter_at_once(page: Any, listed: list[dict[str, Any]]) -> None:
    """Failures can be asked for."""
    page.select_option("#table-outcome", label="did-not-work")
    wanted = [each for each in listed if each["outcome"] == "did-not-work"]
    assert len(wanted) == 32
    assert sorted(titles(page)) == sorted(each["title"] for each in wanted)
    page.fill("#table-filter", "router")
    routers = [each["title"] for each in wanted if "router" in json.dumps(each).lower()]
    assert sorted(titles(page)) == sorted(routers)
    assert routers


def test_a_heading_sorts_and_sorts_back(page: Any, listed: list[dict[str, Any]]) -> None:
    """And says so to those who do not see the arrow."""
    head = page.locator("thead button", has_text="experiment")
    head.click()
    assert titles(page)[0] == min((each["title"] for each in listed), key=str.casefold)
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("experiment")
    head.click()
    assert page.locator("th[aria-sort=descending]").count() == 1
    assert titles(page)[-1] == min((each["title"] for each in listed), key=str.casefold)


def test_the_address_brings_it_back(page: Any, browser: Any) -> None:
    """A link to what one sees."""
    page.select_option("#table-topics", label="forecast")
    page.locator("thead button", has_text="date").click()
    again = browser.new_page()
    again.goto(page.evaluate("location.href"))
    again.wait_for_selector(COUNT)
    assert titles(again) == titles(page)
    assert again.inner_text(COUNT) == page.inner_text(COUNT) != ""
    again.close()


def test_without_scripts_the_table_is_whole(built_site: Path, browser: Any, listed: list[dict[str, Any]]) -> None:
    """Every row, and the counts of outcomes."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((built_site / "generated/experiments/index.html").as_uri())
    assert sorted(titles(page)) == sorted(each["title"] for each in listed)
    assert "did-not-work" in page.inner_text("main")
    context.close()
