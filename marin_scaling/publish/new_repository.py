"""Files of a new repository for forecasts, and the repository's address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.errors import installed_from
from marin_scaling.files import read_bytes, write_once
from marin_scaling.git import checked_out_commit, remote_address
from marin_scaling.ladder.config import SCHEMA_FILE, ladder_schema
from marin_scaling.publish.render import asset
from marin_scaling.untrusted_files import is_present

_TEMPLATES: Mapping[str, str] = {
    "README.md": "README.md",
    "ladders/quickstart.yaml": "ladders/quickstart.yaml",
    "mkdocs.yml": "mkdocs.yml",
    "site/index.md": "site/index.md",
    ".gitignore": "gitignore",
    ".gitattributes": "gitattributes",
    ".github/CODEOWNERS": "github/CODEOWNERS",
    ".github/workflows/marin-scale.yml": "github/marin-scale.yml",
    ".github/workflows/preregistration.yml": "github/preregistration.yml",
    ".github/workflows/preregistration-comment.yml": "github/preregistration-comment.yml",
    ".github/workflows/preregistration-attest.yml": "github/preregistration-attest.yml",
    ".github/workflows/speedrun.yml": "github/speedrun.yml",
    "preregistrations/policy.yaml": "preregistrations/policy.yaml",
}
_KEPT_FOLDERS = ("runs",)


@dataclass(frozen=True, kw_only=True)
class UserRepository:
    """Files that were made, and existing files with other content that were kept."""

    made: tuple[Path, ...]
    kept: tuple[Path, ...]


def make_user_repository(root: Path) -> UserRepository:
    """Make the missing files of a repository at `root`; existing ones are kept. `StorageError` if one cannot be written."""
    contents = {root / name: asset(source) for name, source in _TEMPLATES.items()}
    contents[root / "ladders" / SCHEMA_FILE] = ladder_schema().encode()
    contents |= {root / name / ".gitkeep": b"" for name in _KEPT_FOLDERS if not (root / name).is_dir()}
    there = {path for path in contents if is_present(path)}
    for path, content in contents.items():
        if path not in there:
            write_once(path, content)
    return UserRepository(
        made=tuple(sorted(contents.keys() - there)),
        kept=tuple(sorted(path for path in there if path.is_symlink() or read_bytes(path) != contents[path])),
    )


def tool_address() -> str:
    """Return the address from which the workflows of a new repository install this package."""
    folder, address = installed_from()
    remote = None if folder is None else remote_address(Path(folder))
    page = page_of_remote(remote) if remote else None
    return address or f"git+{page or 'https://HOST/OWNER/NAME'}@{(folder and checked_out_commit(Path(folder))) or 'COMMIT'}"


_OF_SSH = re.compile(r"(?:ssh://)?(?:[^@/\s]+@)(?P<host>[^:/\s]+)(?::\d+/|[:/])(?P<path>[^\s]+?)(?:\.git)?/?")
_OF_HTTPS = re.compile(r"https://(?:[^@/\s]+@)?(?P<host>[^/\s]+)/(?P<path>[^\s?#]+?)(?:\.git)?/?")


def address_on_the_web(folder: Path) -> str | None:
    """Return the web page of the repository's origin; None without origin or git."""
    remote = remote_address(folder)
    return page_of_remote(remote) if remote else None


def page_of_remote(remote: str) -> str | None:
    """Return the web page of a remote's address, without credentials; None for a folder.

    >>> page_of_remote("git@example.org:lab/forecasts.git"), page_of_remote("https://ada:key@example.org/lab/forecasts")
    ('https://example.org/lab/forecasts', 'https://example.org/lab/forecasts')
    """
    match = _OF_HTTPS.fullmatch(remote) or _OF_SSH.fullmatch(remote)
    return f"https://{match['host']}/{match['path']}" if match else None
