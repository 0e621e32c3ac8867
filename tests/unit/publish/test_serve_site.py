"""Showing a built site on this machine."""

import threading
import urllib.request

import pytest

from marin_scaling.errors import UsageError
from marin_scaling.publish.build import serve_site


def test_the_site_is_served_to_this_machine_only(tmp_path):
    """A page comes as it lies in the folder, from the loopback address."""
    (tmp_path / "index.html").write_text("hello")
    with serve_site(tmp_path, port=0) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/index.html", timeout=60) as answer:
            assert answer.read() == b"hello"
        assert server.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_refused_with_another_to_try(tmp_path):
    """One message, no traceback."""
    with serve_site(tmp_path, port=0) as first, pytest.raises(UsageError, match="cannot be used"):
        serve_site(tmp_path, port=first.server_port)
