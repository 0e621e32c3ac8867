"""The Atom feed: every event of the log and every record of a board, the newest first, each with a page and a lasting name."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from registration_factory import make_registration, store_run
from submission_factory import submission

from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.verdict import check_all
from marin_scaling.publish.build import feed, generated_pages
from marin_scaling.speedrun.submission import write_submission

pytest.importorskip("altair", reason="comes with the site extra")
ATOM = "{http://www.w3.org/2005/Atom}"


def entries(raw: bytes) -> list[dict[str, str]]:
    """Title, id, time, summary and address of each entry."""
    return [
        {child.tag.removeprefix(ATOM): child.get("href") or child.text or "" for child in entry}
        for entry in ElementTree.fromstring(raw).iter(f"{ATOM}entry")
    ]


def test_forecast_outcome_and_record_are_in_the_feed_and_lead_to_pages_that_are_there(tmp_path: Path) -> None:
    """The newest first; the feed is as old as its newest entry."""
    registration = make_registration(tmp_path)
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, day="2026-11-21")
    check_all([registration.folder], runs_dir=tmp_path / "runs", checked_at=datetime(2026, 11, 22, tzinfo=UTC))
    write_down(registration.folder.parent, at=datetime(2026, 11, 22, tzinfo=UTC))
    write_submission(tmp_path / "speedruns", submission())
    pages = generated_pages(tmp_path)
    found = entries(pages["feed.xml"])
    assert [each["title"] for each in found] == [
        "2026-11-20-tiny-target: outcome",
        "llama/130m: a record of fineweb-edu",
        "2026-11-20-tiny-target: forecast registered",
    ]
    assert {each["summary"] for each in found if "tiny-target" in each["title"]} == {"It is now held."}
    for each in found:
        assert each["link"].replace(".html", ".md") in pages
    assert ElementTree.fromstring(pages["feed.xml"]).findtext(f"{ATOM}updated") == found[0]["updated"] == "2026-11-22T00:00:00Z"


def test_the_same_files_give_the_same_feed(tmp_path: Path) -> None:
    """And every entry a name of its own that stays when others come."""
    make_registration(tmp_path)
    shutil.rmtree(tmp_path / "runs")  # their page is not looked at
    first = generated_pages(tmp_path)["feed.xml"]
    assert generated_pages(tmp_path)["feed.xml"] == first
    write_submission(tmp_path / "speedruns", submission())
    later = entries(generated_pages(tmp_path)["feed.xml"])
    assert entries(first)[0] in later
    assert len({each["id"] for each in later}) == len(later) == 2


def test_a_repository_without_events_has_an_empty_feed(tmp_path: Path) -> None:
    """With a time, which the format asks for."""
    raw = feed(tmp_path, verdicts=(), boards=(), pages={})
    assert entries(raw) == []
    assert ElementTree.fromstring(raw).findtext(f"{ATOM}updated") == "1970-01-01T00:00:00Z"


def test_a_log_that_cannot_be_read_breaks_no_page(tmp_path: Path) -> None:
    """The page of its forecast says why."""
    folder = make_registration(tmp_path).folder
    (folder.parent / "log.jsonl").write_text("{}\n")
    shutil.rmtree(tmp_path / "runs")
    assert entries(generated_pages(tmp_path)["feed.xml"]) == []
