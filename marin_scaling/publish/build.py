"""Build and serve the site."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.errors import MarinScalingError, SiteError, UsageError, missing_extra
from marin_scaling.files import replace_file
from marin_scaling.markdown import page_name, without_root
from marin_scaling.preregistration.log import Receipts, read_log, receipts_with_history
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.registry import registration_folders
from marin_scaling.preregistration.statement import parse_moment
from marin_scaling.preregistration.verification import require_whole_registry
from marin_scaling.printable import SITE_SECONDS
from marin_scaling.publish.board_page import read_speedruns, speedrun_pages
from marin_scaling.publish.experiment_pages import experiment_pages, explanations
from marin_scaling.publish.figures import PLOTTER_NAME, SITE_ASSETS, asset, plotter, render
from marin_scaling.publish.forecast_index import INTERVALS, forecasts_index, home_files
from marin_scaling.publish.forecast_page import ForecastPage, forecast_page
from marin_scaling.publish.ladder_page import PROGRAM_NAME, ladder_names, ladder_page, ladders_index
from marin_scaling.publish.site_settings import SETTINGS_NAME, SITE_DIR, require_plain_settings
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
    updated = newest[0]["updated"] if newest else _moment(_EPOCH)
    return render("feed.xml.j2", events=newest, updated=updated, most=MOST_EVENTS).encode()


def _log_events(root: Path, states: Mapping[str, State]) -> Iterator[dict[str, str]]:
    with suppress(MarinScalingError):
        for line in read_log(root / "preregistrations").entries:
            if line.id in states:
                yield {
                    "updated": _moment(parse_moment(line.logged_at)),
                    "key": sha256_hex(line.line),
                    "title": f"{line.id}: {_SAID[line.kind]}",
                    "summary": f"It is now {states[line.id]}.",
                    "page": f"preregistrations/{page_name(line.id)}.html",
                }


def _record_event(record: Record, pages: Mapping[str, str]) -> dict[str, str]:
    each = record.submission
    return {
        "updated": _moment(record.at),
        "key": sha256_hex(f"{each.track} {each.name} {record.at.isoformat()}".encode()),
        "title": f"{each.name}: a record of {each.track}",
        "summary": f"{each.bits_per_byte:.4f} bits per byte for {format_flops(each.compute.model_flops)} model FLOPs",
        "page": f"speedrun/{pages[each.name].removesuffix('.md')}.html",
    }


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


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
    command += ["--config-file", str(root / SETTINGS_NAME), "--site-dir", str(root / SITE_DIR)]
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
