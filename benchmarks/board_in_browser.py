"""The speedrun board of many generated submissions in a real browser: how heavy, how soon usable, how long a sort takes.

A site with the board's page is built by mkdocs (without the pages of single submissions), served here, and opened in Chromium.
Usable: rows, controls and figure are drawn, from the start of navigation on; sorted: from a click, once the page has come to
rest, to the next frame drawn.
Wanted at 10,000: 1 s, 100 ms, and a page of at most 1.5 MB.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright
from report import parser, publish
from speedrun_scale import generated

from marin_scaling.files import replace_file
from marin_scaling.publish.board_page import read_speedruns, speedrun_pages
from marin_scaling.publish.build import make_user_repository, serve_site
from marin_scaling.speedrun.submission import write_submission

COUNTS = (100, 1_000, 10_000)
REPEATED = 5
PAGE = "generated/speedrun/index.html"
ROWS = ".board-live .board-table tbody tr"
USABLE = """() => new Promise(done => {
  const look = () => document.querySelector("ROWS") && document.querySelector(".board-figure path")
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now()))) : setTimeout(look, 2);
  look();
})""".replace("ROWS", ROWS)
SORTED = """label => new Promise(done => {
  const head = [...document.querySelectorAll(".board-table thead button")].find(each => each.textContent.startsWith(label));
  const began = performance.now();
  head.click();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""


@contextmanager
def built(count: int) -> Iterator[Path]:
    """A built site with the board of so many."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_user_repository(root)
        for each in generated(count):
            write_submission(root / "speedruns", each)
        for name, content in speedrun_pages(read_speedruns(root), root=root).items():
            if name.startswith("speedrun/index") or not name.endswith((".md", ".submission.json")):
                replace_file(root / "site" / "generated" / name, content)
        shutil.rmtree(root / "speedruns")
        command = [sys.executable, "-P", "-m", "mkdocs", "build", "-q", "--no-strict", "--site-dir", str(root / ".site")]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
        yield root / ".site"


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Its address while it is served."""
    with serve_site(site, port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def opened(chromium: Any, address: str) -> tuple[float, float, set[str]]:
    """Milliseconds until it is usable, the slowest of three sorts, and what was fetched for it."""
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    fetched: set[str] = set()
    page.on("request", lambda request: fetched.add(request.url))
    page.goto(f"{address}/{PAGE}", wait_until="commit")
    usable = page.evaluate(USABLE)
    page.wait_for_load_state("networkidle")
    sorts = [page.evaluate(SORTED, label) for label in ("parameters", "model FLOPs", "bits per byte")]
    page.close()
    return usable, max(sorts), fetched


def measured(chromium: Any, count: int) -> list[str]:
    """A row of the table."""
    with built(count) as site, served(site) as address:
        found = [opened(chromium, address) for _ in range(REPEATED)]
        files = {
            site / url.removeprefix(f"{address}/").partition("?")[0]
            for each in found
            for url in each[2]
            if url.startswith(address)
        }
        raw = [path.read_bytes() for path in files if path.is_file() and "search" not in path.parts]
    heavy, sent = (sum(map(len, contents)) / 1e6 for contents in (raw, [gzip.compress(each) for each in raw]))
    usable, sorts = ([each[place] for each in found] for place in (0, 1))
    return [
        f"{count:,}",
        f"{heavy:.2f}",
        f"{sent:.2f}",
        f"{median(usable):.0f}",
        f"{max(usable):.0f}",
        f"{median(sorts):.0f}",
        f"{max(sorts):.0f}",
    ]


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as tools:
        chromium = tools.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        rows = [measured(chromium, count) for count in COUNTS]
        version = chromium.version
        chromium.close()
    publish(
        "The speedrun's board in a browser",
        columns=("submissions", "page MB", "compressed MB", "usable ms", "slowest", "sorted ms", "slowest"),
        rows=rows,
        packages=("mkdocs-material", "playwright"),
        notes=[
            f"Chromium {version}, 1440 x 900, each opened {REPEATED} times: median and slowest. The page is everything that "
            "its first view asks for but the search, as it lies in the folder, and as a server sends it that compresses. "
            "Wanted at 10,000: usable within 1,000 ms, sorted within 100 ms, at most 1.5 MB."
        ],
        write=options.write,
    )


if __name__ == "__main__":
    main()
