"""Build and serve the site, and make the files of a new repository.

A pull request can change `mkdocs.yml`, and mkdocs runs Python, renders templates and reads files that its settings name. So
settings are allowed one by one, and all others are refused.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import MarinScalingError, SiteError, UsageError, installed_from, missing_extra
from marin_scaling.files import read_bytes, replace_file, write_once
from marin_scaling.git import address_on_the_web, checked_out_commit
from marin_scaling.ladder.config import SCHEMA_FILE, ladder_schema
from marin_scaling.markdown import page_name, without_root
from marin_scaling.preregistration.log import Receipts, read_log, receipts_with_history
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.registry import registration_folders
from marin_scaling.preregistration.statement import moment_text, parse_moment
from marin_scaling.preregistration.verification import require_whole_registry
from marin_scaling.printable import SITE_SECONDS
from marin_scaling.publish.board_page import read_speedruns, speedrun_pages
from marin_scaling.publish.experiment_pages import experiment_pages, explanations
from marin_scaling.publish.figures import PLOTTER_NAME, SITE_ASSETS, asset, plotter, render
from marin_scaling.publish.forecast_index import INTERVALS, forecasts_index, home_files
from marin_scaling.publish.forecast_page import ForecastPage, forecast_page
from marin_scaling.publish.ladder_page import PROGRAM_NAME, ladder_names, ladder_page, ladders_index
from marin_scaling.speedrun.leaderboard import Board, Record
from marin_scaling.units import format_flops
from marin_scaling.untrusted_files import (
    DATA_FOLDERS,
    SITE_SETTINGS,
    child_environment,
    is_present,
    python_module,
    require_regular_tree,
)
from marin_scaling.yaml_config import PlainLoader

GENERATED = Path("site/generated")


def generated_pages(root: Path) -> dict[str, bytes]:
    """Return every generated file by its path below `site/generated/`. No file contains this machine's paths."""
    root = root.resolve()
    forecasts = _forecast_pages(root)
    promised = [each.promised for each in forecasts if each.promised]
    ladders = [
        ladder_page(root, name, promised=[each for each in promised if each.ladder == name]) for name in ladder_names(root)
    ]
    fault = registry_fault(root)
    files = {**forecasts_index(forecasts, root=root, fault=fault), "ladders/index.md": ladders_index(ladders)}
    files[f"ladders/{PROGRAM_NAME}"] = asset(f"law/{PROGRAM_NAME}")
    for each in [*ladders, *forecasts]:
        files.update(each.files)
    files |= home_files(ladders, promised, has_intervals=INTERVALS in files)
    speedruns = read_speedruns(root)
    verdicts = [each.verdict for each in forecasts]
    files[FEED_NAME] = feed(root, verdicts=verdicts, boards=speedruns.boards, pages=speedruns.pages)
    files |= speedrun_pages(speedruns, root=root)
    if any(name.endswith("/interactive.html") for name in files):
        files[PLOTTER_NAME] = plotter()
    files |= {f"assets/{name}": asset(f"site/{name}") for name in SITE_ASSETS}
    return files | experiment_pages(root, linked=files.keys())


def _forecast_pages(root: Path) -> list[ForecastPage]:
    """Return the page of each forecast; pages name a log or history that cannot be read."""
    folders, explained = registration_folders(root / "preregistrations"), explanations(root)
    receipts: dict[Path, Receipts] = {}
    with suppress(MarinScalingError):
        receipts = receipts_with_history(folders, runs_dir=root / "runs")
    return [
        forecast_page(root, folder, receipts=receipts.get(folder.parent), explanations=explained.get(folder.name, ()))
        for folder in folders
    ]


def registry_fault(root: Path) -> str:
    """Return why the registry as a whole is refused; empty if it is not. Each forecast may still be sound."""
    registry = root / "preregistrations"
    try:
        if is_present(registry):
            require_whole_registry(registry)
    except MarinScalingError as error:
        return without_root(str(error), root)
    return ""


FEED_NAME = "feed.xml"
MOST_EVENTS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAID = {
    "seal": "sealed",
    "register": "forecast registered",
    "reveal": "forecast revealed",
    "review": "signed by a reviewer",
    "outcome": "outcome",
    "stamp": "stamped by a third party",
    "amend": "a later forecast of the same run",
    "notice": "a notice",
}


def feed(root: Path, *, verdicts: Sequence[Verdict], boards: Sequence[Board], pages: Mapping[str, str]) -> bytes:
    """Return the Atom feed of the log and the speedrun's records, newest first; `pages` maps submission names to pages.

    Times come from the log and the runs, so the same files give the same feed. An unreadable log gives no entries; the pages of
    its forecasts show the reason.
    """
    states = {verdict.id: verdict.state for verdict in verdicts}
    events = [*_log_events(root, states), *(_record_event(each, pages) for board in boards for each in board.records)]
    newest = sorted(events, key=lambda event: (event["updated"], event["key"]), reverse=True)[:MOST_EVENTS]
    updated = newest[0]["updated"] if newest else moment_text(_EPOCH)
    return render("feed.xml.j2", events=newest, updated=updated, most=MOST_EVENTS).encode()


def _log_events(root: Path, states: Mapping[str, State]) -> Iterator[dict[str, str]]:
    with suppress(MarinScalingError):
        for line in read_log(root / "preregistrations").entries:
            if line.id in states:
                yield {
                    "updated": moment_text(parse_moment(line.logged_at)),
                    "key": sha256_hex(line.line),
                    "title": f"{line.id}: {_SAID[line.kind]}",
                    "summary": f"It is now {states[line.id]}.",
                    "page": f"preregistrations/{page_name(line.id)}.html",
                }


def _record_event(record: Record, pages: Mapping[str, str]) -> dict[str, str]:
    each = record.submission
    return {
        "updated": moment_text(record.at),
        "key": sha256_hex(f"{each.track} {each.name} {record.at.isoformat()}".encode()),
        "title": f"{each.name}: a record of {each.track}",
        "summary": f"{each.bits_per_byte:.4f} bits per byte for {format_flops(each.compute.model_flops)} model FLOPs",
        "page": f"speedrun/{pages[each.name].removesuffix('.md')}.html",
    }


def write_generated_pages(root: Path) -> list[Path]:
    """Replace the generated pages; return their paths."""
    files = generated_pages(root)
    shutil.rmtree(root / GENERATED, ignore_errors=True)
    for name, content in files.items():
        replace_file(root / GENERATED / name, content)
    return [root / GENERATED / name for name in files]


_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONPATH", "PYTHONHASHSEED", "SOURCE_DATE_EPOCH")


def build_site(root: Path, *, on_message: Callable[[str], object] = str) -> Path:
    """Build the site of the repository at `root` and return its first page; `on_message` receives the progress.

    `UsageError` without `mkdocs.yml`, `MissingExtra` without mkdocs. `SiteError` if mkdocs refuses a page, or if the settings
    could run code of the repository or read files outside of it.
    """
    root = root.resolve()
    if not is_present(root / SITE_SETTINGS):
        raise UsageError(
            f"{root / 'mkdocs.yml'} does not exist.",
            why="A site is built from mkdocs.yml and the folder site/.",
            fix="Change to the root of the repository, or make one: marin-scale init",
        )
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        raise missing_extra("site", needed_for="building a site")
    require_regular_tree(root / name for name in (*DATA_FOLDERS, SITE_SETTINGS, str(SITE_DIR)))
    require_plain_settings(root)
    on_message("Writing the pages ...")
    files = write_generated_pages(root)
    on_message(f"Building the site from {len(files)} generated files with mkdocs ...")
    _run_mkdocs(root)
    return root / SITE_DIR / "index.html"


def _environment() -> dict[str, str]:
    """Return the environment variables that mkdocs needs; none is a secret."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith("LC_")}
    return child_environment({**kept, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"})


def _run_mkdocs(root: Path) -> None:
    command = [*python_module("mkdocs"), "build", "--strict"]
    command += ["--config-file", str(root / SITE_SETTINGS), "--site-dir", str(root / SITE_DIR)]
    try:
        done = subprocess.run(
            command, cwd=root, env=_environment(), capture_output=True, text=True, check=False, timeout=SITE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise SiteError(
            f"mkdocs was stopped after {SITE_SECONDS} s without finishing the site.",
            why="Markdown takes quadratic time for some pages: 14 s for 10 kB of open brackets.",
            fix="Remove the pages in site/ that changed last, one by one, and rerun: marin-scale site build",
        ) from error
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise SiteError(
            ("mkdocs refused to build the site:", *said[-20:]),
            why="Pages with broken links or missing files are not published.",
            fix="Fix the named page and rerun: marin-scale site build",
        )


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log line of each request."""


def serve_site(site_dir: Path, *, port: int) -> ThreadingHTTPServer:
    """Return a server of `site_dir` on 127.0.0.1, not started yet; close it or use it as a context manager."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(site_dir)))
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be used: {(error.strerror or str(error)).lower()}.",
            why="The site is served on this machine.",
            fix="Choose another port: marin-scale site serve --port 8001",
        ) from error


DOCS_DIR, SITE_DIR = "site", ".site"
_MOST_BYTES = 200_000
_MOST_NAMED = 10
_SNIPPET_FOLDERS = ("site", "ladders")

Check = Callable[[Any], bool]


def require_plain_settings(root: Path) -> None:
    """Raise `SiteError` for settings that could run code, or read or write outside of the repository at `root`."""
    path = root / SITE_SETTINGS
    refused = list(_refused(_read(path), _SETTINGS))
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


_PALETTE = _Table(
    {
        "media": _is_text,
        "scheme": _is_name,
        "primary": _is_name,
        "accent": _is_name,
        "toggle": _Table({"icon": _is_icon, "name": _is_text}),
    }
)
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
    "theme": _Table(
        {
            "name": _is("material"),
            "language": _matches(r"[a-z]{2}(-[A-Za-z]{2,4})?"),
            "font": _either(_is(False), _Table({"text": _is_name, "code": _is_name})),
            "logo": _is_path_below,
            "favicon": _is_path_below,
            "icon": _Table({"logo": _is_icon, "repo": _is_icon}),
            "features": _each(_matches(r"[a-z.]+")),
            "palette": _either(_PALETTE, _each(_PALETTE)),
        }
    ),
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
