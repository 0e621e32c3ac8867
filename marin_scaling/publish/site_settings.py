"""Files of a new repository, and the allowlist of settings in `mkdocs.yml`; all others are refused.

A pull request can change these settings, and mkdocs runs Python, renders templates and reads files that they name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from marin_scaling.errors import SiteError, installed_from
from marin_scaling.files import read_bytes, write_once
from marin_scaling.git import address_on_the_web, checked_out_commit
from marin_scaling.ladder.config import SCHEMA_FILE, ladder_schema
from marin_scaling.publish.figures import asset
from marin_scaling.untrusted_files import is_present
from marin_scaling.yaml_config import PlainLoader

SETTINGS_NAME = "mkdocs.yml"
DOCS_DIR, SITE_DIR = "site", ".site"
_MOST_BYTES = 200_000
_MOST_NAMED = 10
_SNIPPET_FOLDERS = ("site", "ladders")

Check = Callable[[Any], bool]


def require_plain_settings(root: Path, *, template_folder: Path | None = None) -> None:
    """Raise `SiteError` for settings that could run code, or read or write outside of the repository at `root`.

    `template_folder`, of the installed package, is the only folder of templates that settings may name.
    """
    path = root / SETTINGS_NAME
    document = _read(path)
    checks = {**_SETTINGS, "theme": _table(_theme(template_folder))}
    refused = list(_refused(document, checks))
    if refused:
        shown = [*refused[:_MOST_NAMED], *([f"and {len(refused) - _MOST_NAMED} more"] if len(refused) > _MOST_NAMED else [])]
        raise SiteError(
            f"{path}: {len(refused)} settings are not allowed:\n       " + "\n       ".join(shown),
            why="These settings can run code or read files outside of the repository during a build.",
            fix=f"Remove the settings, or run mkdocs yourself in a sandbox: mkdocs build -f {path}",
        )


class _Loader(PlainLoader):
    """YAML loader of plain values, without tags or aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            found = "an alias" if isinstance(event, yaml.AliasEvent) else f"the tag {event.tag}"
            raise yaml.MarkedYAMLError(problem=f"{found} is not allowed", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(read_bytes(path, most_bytes=_MOST_BYTES).decode(), Loader=_Loader)
        if not isinstance(document, dict):
            raise ValueError("it is not a table of settings")
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise SiteError(
            f"{path} cannot be read: {_reason(error)}.",
            why="Site settings are plain YAML: tables, lists, text and numbers.",
            fix="Write plain values; marin-scale init writes an example.",
        ) from error
    return document


def _reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split()) or type(error).__name__


def _refused(document: Mapping[Any, Any], checks: Mapping[str, Check], *, above: str = "") -> Iterator[str]:
    """Yield each setting that is unknown or has a refused value, by its full key."""
    for key, value in document.items():
        name = f"{above}{key!s}"
        check = checks.get(key) if isinstance(key, str) else None
        if isinstance(check, _Table) and isinstance(value, dict):
            yield from _refused(value, check.checks, above=f"{name}.")
        elif isinstance(check, _Named) and isinstance(value, list):
            yield from (f"{name}: {_shown(each)}" for each in value if not check.allows(each))
        elif check is None or not check(value):
            yield f"{name}: {_shown(value)}"


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


class _Table:
    """Table with known keys."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self.checks = checks

    def __call__(self, value: Any) -> bool:
        return isinstance(value, dict) and not list(_refused(value, self.checks))


class _Named:
    """List of plugins or extensions, some with options: `name` or `{name: {option: value}}`."""

    def __init__(self, options: Mapping[str, Mapping[str, Check]]) -> None:
        self.options = options

    def allows(self, each: Any) -> bool:
        if isinstance(each, str):
            return each in self.options
        if not isinstance(each, dict) or len(each) != 1:
            return False
        ((name, options),) = each.items()
        return name in self.options and (options is None or _Table(self.options[name])(options))

    def __call__(self, value: Any) -> bool:
        return isinstance(value, list) and all(map(self.allows, value))


def _table(checks: Mapping[str, Check]) -> Check:
    return _Table(checks)


def _is_text(value: Any) -> bool:
    """Return True for short text without markup: the theme inserts titles and names into pages unescaped."""
    return isinstance(value, str) and len(value) < 1000 and not set(value) & set('<>"')


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is(allowed: Any) -> Check:
    return lambda value: type(value) is type(allowed) and value == allowed


def _matches(pattern: str) -> Check:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


_is_web_address = _matches(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+")
_is_name = _matches(r"[A-Za-z0-9][A-Za-z0-9 ._-]*")
_is_icon = _matches(r"[a-z0-9-]+(/[a-z0-9-]+)+")
_is_path_below = _matches(r"(?!.*(^|/)\.\.?(/|$))[A-Za-z0-9_.][A-Za-z0-9_./ -]*")
_is_level = _matches(r"warn|info|ignore|relative_to_docs")


def _is_navigation(value: Any) -> bool:
    """Return True for titles with pages of the site or web addresses."""
    if isinstance(value, list):
        return all(map(_is_navigation, value))
    if isinstance(value, dict):
        return all(_is_text(title) and _is_navigation(inner) for title, inner in value.items())
    return _is_path_below(value) or _is_web_address(value)


def _theme(template_folder: Path | None) -> dict[str, Check]:
    palette = _Table(
        {
            "media": _is_text,
            "scheme": _is_name,
            "primary": _is_name,
            "accent": _is_name,
            "toggle": _Table({"icon": _is_icon, "name": _is_text}),
        }
    )
    return {
        "name": _is("material"),
        "language": _matches(r"[a-z]{2}(-[A-Za-z]{2,4})?"),
        "font": _either(_is(False), _Table({"text": _is_name, "code": _is_name})),
        "logo": _is_path_below,
        "favicon": _is_path_below,
        "icon": _Table({"logo": _is_icon, "repo": _is_icon}),
        "features": _each(_matches(r"[a-z.]+")),
        "palette": _either(palette, _each(palette)),
        "custom_dir": _is(str(template_folder)),
    }


_EXTENSIONS: dict[str, dict[str, Check]] = {
    "abbr": {},
    "admonition": {},
    "attr_list": {},
    "def_list": {},
    "footnotes": {},
    "md_in_html": {},
    "tables": {},
    "toc": {"permalink": _is_truth, "toc_depth": lambda value: isinstance(value, int | str)},
    "pymdownx.details": {},
    "pymdownx.highlight": {"anchor_linenums": _is_truth, "linenums": _is_truth},
    "pymdownx.inlinehilite": {},
    "pymdownx.superfences": {},
    "pymdownx.tabbed": {"alternate_style": _is_truth},
    "pymdownx.snippets": {
        "base_path": _each(_either(*map(_is, _SNIPPET_FOLDERS))),
        "check_paths": _is_truth,
        "restrict_base_path": _is(True),
    },
}
_SETTINGS: dict[str, Check] = {
    "site_name": _is_text,
    "site_description": _is_text,
    "site_author": _is_text,
    "site_url": _is_web_address,
    "repo_url": _is_web_address,
    "repo_name": _is_text,
    "docs_dir": _is(DOCS_DIR),
    "site_dir": _is(SITE_DIR),
    "use_directory_urls": _is_truth,
    "strict": _is_truth,
    "extra_css": _each(_is_path_below),
    "extra_javascript": _each(_is_path_below),
    "markdown_extensions": _Named(_EXTENSIONS),
    "plugins": _Named({"search": {}, "offline": {}}),
    "extra": _Table({"polyfills": _each(_is_path_below)}),
    "validation": _Table(
        {
            "links": _Table(dict.fromkeys(("absolute_links", "anchors", "unrecognized_links", "not_found"), _is_level)),
            "nav": _Table(dict.fromkeys(("omitted_files", "not_found", "absolute_links"), _is_level)),
        }
    ),
    "nav": _is_navigation,
}


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
    page = address_on_the_web(Path(folder)) if folder else None
    return address or f"git+{page or 'https://HOST/OWNER/NAME'}@{(folder and checked_out_commit(Path(folder))) or 'COMMIT'}"
