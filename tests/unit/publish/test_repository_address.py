"""The page of a repository follows from its remote, without any account; nothing is asked on the web."""

import subprocess
from pathlib import Path

import pytest

from marin_scaling.git import address_on_the_web, page_of_remote


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("https://example.org/lab/forecasts.git", "https://example.org/lab/forecasts"),
        ("https://ada:secret@example.org/lab/forecasts.git/", "https://example.org/lab/forecasts"),
        ("git@example.org:lab/forecasts.git", "https://example.org/lab/forecasts"),
        ("ssh://git@example.org:2222/lab/forecasts", "https://example.org/lab/forecasts"),
        ("/srv/forecasts.git", None),
        ("../forecasts", None),
        ("file:///srv/forecasts", None),
        ("", None),
    ],
)
def test_the_page_of_a_remote(remote: str, page: str | None) -> None:
    """None of what is only a folder."""
    assert page_of_remote(remote) == page


def test_the_origin_is_asked_for_and_a_folder_without_one_has_none(tmp_path: Path) -> None:
    """A real repository, before and after it has a remote."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert address_on_the_web(tmp_path) is None
    subprocess.run(["git", "remote", "add", "origin", "git@example.org:lab/x.git"], cwd=tmp_path, check=True)
    assert address_on_the_web(tmp_path) == "https://example.org/lab/x"
