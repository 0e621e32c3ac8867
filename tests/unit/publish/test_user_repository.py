"""`marin-scale init`: what it makes is complete, and what is there already is kept."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.publish.build import make_user_repository

ROOT = Path(__file__).parents[3]


def test_the_example_ladder_is_the_one_of_this_repository(tmp_path):
    """All but its target and promise, which say what this repository has seen already."""
    make_user_repository(tmp_path)
    made, own = (read_ladder_file(root / "ladders" / "quickstart.yaml") for root in (tmp_path, ROOT))
    assert made.model_dump(exclude={"target", "promise"}) == own.model_dump(exclude={"target", "promise"})


def test_a_second_time_nothing_is_made_and_nothing_is_kept_that_differs(tmp_path):
    """Making it twice is making it once."""
    first, second = make_user_repository(tmp_path), make_user_repository(tmp_path)
    assert len(first.made) == 15
    assert (second.made, second.kept) == ((), ())


def test_a_file_that_is_there_is_kept_and_named(tmp_path):
    """A reader's own README is not touched."""
    (tmp_path / "README.md").write_text("mine")
    repository = make_user_repository(tmp_path)
    assert repository.kept == (tmp_path / "README.md",)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_forecasts_of_runs_of_another_trainer_are_named(tmp_path):
    """In what the command prints, and in the README."""
    shown = CliRunner().invoke(app, ["init", str(tmp_path)]).output
    readme = " ".join((tmp_path / "README.md").read_text().split())
    assert all("marin-scale preregister --table" in text for text in (shown, readme))
    assert "marin-scale outcome" in readme


def test_the_workflow_and_the_site_are_sound_yaml_and_the_signed_files_keep_their_bytes(tmp_path):
    """The workflow verifies all preregistrations with no right to write."""
    make_user_repository(tmp_path)
    workflow = yaml.safe_load((tmp_path / ".github" / "workflows" / "marin-scale.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert {"run": "marin-scale verify all"} in workflow["jobs"]["verify"]["steps"]
    assert yaml.safe_load((tmp_path / "mkdocs.yml").read_text())["theme"]["font"] is False
    assert "preregistrations/** -text" in (tmp_path / ".gitattributes").read_text()


@pytest.mark.site
def test_its_site_builds_strictly_and_needs_no_network(tmp_path):
    """A new repository has a site from the first moment, with no remote asset in any page."""
    pytest.importorskip("material", reason="the site extra is not installed")
    from marin_scaling.publish.build import build_site

    make_user_repository(tmp_path)
    page = build_site(tmp_path)
    pages = {path.name: path.read_text() for path in page.parent.rglob("*.html")}
    assert {"index.html", "quickstart.html"} <= pages.keys()
    for text in pages.values():
        assert 'src="http' not in text
        assert "fonts.g" not in text
