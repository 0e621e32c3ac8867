"""Where a repository can be seen on the web, by the address that git has of its origin. Asks git, and nobody on the web."""

from __future__ import annotations

import re
from pathlib import Path

from marin_scaling.git import remote_address

_OF_SSH = re.compile(r"(?:ssh://)?(?:[^@/\s]+@)(?P<host>[^:/\s]+)(?::\d+/|[:/])(?P<path>[^\s]+?)(?:\.git)?/?")
_OF_HTTPS = re.compile(r"https://(?:[^@/\s]+@)?(?P<host>[^/\s]+)/(?P<path>[^\s?#]+?)(?:\.git)?/?")


def address_on_the_web(folder: Path) -> str | None:
    """The page of the origin of the repository at `folder`; None where it has none, or git is not there."""
    remote = remote_address(folder)
    return page_of_remote(remote) if remote else None


def page_of_remote(remote: str) -> str | None:
    """The page that belongs to the address of a remote, without any account in it; None of a folder.

    >>> page_of_remote("git@example.org:lab/forecasts.git"), page_of_remote("https://ada:key@example.org/lab/forecasts")
    ('https://example.org/lab/forecasts', 'https://example.org/lab/forecasts')
    """
    match = _OF_HTTPS.fullmatch(remote) or _OF_SSH.fullmatch(remote)
    return f"https://{match['host']}/{match['path']}" if match else None
