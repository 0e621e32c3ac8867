"""Show a built site on this machine, to this machine only."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from marin_scaling.errors import UsageError


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""


def serve_site(site_dir: Path, *, port: int) -> ThreadingHTTPServer:
    """A server of the files in `site_dir` on 127.0.0.1, not started yet; close it, or use it as a context manager."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Quiet, directory=str(site_dir)))
    except OSError as error:
        raise UsageError(
            f"Port {port} cannot be used: {(error.strerror or str(error)).lower()}.",
            why="The site is shown by a small server on this machine.",
            fix="Choose another: marin-scale site serve --port 8001",
        ) from error
