"""What lies in the folder for the work is used only as it was written there, on this machine."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from command_line import assert_message, assert_refused, marin_scale
from git_repository import git
from run_factory import corpus

from marin_scaling.data.corpus import MANIFEST_NAME, find_corpus, map_corpus, write_corpus
from marin_scaling.errors import StampError, StorageError
from marin_scaling.preregistration.events import seal
from marin_scaling.run.curves import LossCurve, recorded_losses

LADDER = """\
name: tiny
recipe: quickstart
rungs:
  - {budget_flops: 1e10, hidden_dims: [8, 12]}
target: {budget_flops: 1e11}
evaluation: {windows: 64}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "ladders").mkdir(parents=True)
    (root / "ladders" / "tiny.yaml").write_text(LADDER)
    git(root, "init", "-q")
    return root


def add(root: Path, name: str) -> None:
    path = root / ".marin-scaling" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    git(root, "add", "-f", str(path))


def a_tracked_link(root: Path) -> None:
    (root / ".marin-scaling").mkdir()
    (root / ".marin-scaling" / "compiled").symlink_to("/tmp")
    git(root, "add", "-f", ".marin-scaling/compiled")


def tracked_and_gone(root: Path) -> None:
    add(root, "compiled/x-cache")
    (root / ".marin-scaling" / "compiled" / "x-cache").unlink()


def a_link(root: Path) -> None:
    (root / "other").mkdir()
    (root / ".marin-scaling").symlink_to(root / "other")


def a_dangling_link(root: Path) -> None:
    (root / ".marin-scaling").symlink_to(root.parent / "elsewhere")


FORMS: dict[str, Callable[[Path], None]] = {
    "a compiled program": lambda root: add(root, "compiled/x-cache"),
    "a checkpoint": lambda root: add(root, "work/x/checkpoints/x/step-1/metadata.json"),
    "tokens": lambda root: add(root, "data/x/corpus.json"),
    "a spec": lambda root: add(root, "specs/x.json"),
    "a name with a line end": lambda root: add(root, "a\nb"),
    "a tracked link": a_tracked_link,
    "a tracked file that is gone": tracked_and_gone,
    "a link": a_link,
    "a dangling link": a_dangling_link,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_repository_brings_nothing_of_the_work(form: str, root: Path) -> None:
    """Before anything is read or written there."""
    FORMS[form](root)
    before = sorted(path.name for path in root.rglob("*") if ".git" not in path.parts)
    assert_refused(marin_scale("ladder", "ladders/tiny.yaml", cwd=root), ".marin-scaling")
    assert sorted(path.name for path in root.rglob("*") if ".git" not in path.parts) == before
    assert not (root.parent / "elsewhere").exists()


@pytest.mark.parametrize("command", [("ladder", "ladders/tiny.yaml", "--dry-run"), ("status", "ladders/tiny.yaml")])
def test_commands_that_look_refuse_it_too(command: tuple[str, ...], root: Path) -> None:
    add(root, "data/x/corpus.json")
    done = marin_scale(*command, cwd=root)
    assert done.returncode == 2
    assert_message(done, "git rm -r --cached")


def test_files_that_git_does_not_track_are_our_own(root: Path) -> None:
    (root / ".marin-scaling" / "specs").mkdir(parents=True)
    (root / ".gitignore").write_text("/.marin-scaling/\n")
    git(root, "add", ".gitignore")
    done = marin_scale("ladder", "ladders/tiny.yaml", "--dry-run", cwd=root)
    assert done.returncode == 0, done.stderr


LOSSES = (5.5, 4.25, 3.125, 3.0625)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"4.25", b"4.26"),
        (b"4.25", b"3.125"),
        (b"4.25", b""),
        (b"4.25", b"null"),
        (b"5.5}\n", b"5.5}\n{}\n"),
        (b"3.0625}\n", b""),
    ],
)
def test_a_curve_with_a_changed_step_is_none(before: bytes, after: bytes, tmp_path: Path) -> None:
    """A run does not resume with it: its checkpoint is of a later step than the curve."""
    path = tmp_path / "loss_curve.jsonl"
    with LossCurve(path) as curve:
        for loss in LOSSES:
            curve.add(loss)
        curve.sync()
    assert len(recorded_losses(path)) == len(LOSSES)
    path.write_bytes(path.read_bytes().replace(before, after))
    assert recorded_losses(path) == []


@pytest.mark.parametrize(
    ("before", "after"), [(b"0.5", b"0.6"), (b',"gradient_norm":0.5', b""), (b"0.75", b"0.7"), (b"0.69", b"0.68")]
)
def test_a_curve_with_a_changed_norm_or_routing_is_none(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "loss_curve.jsonl"
    with LossCurve(path) as curve:
        curve.add(5.5, gradient_norm=2.0, router_entropy_nats=[0.69], expert_shares=[[0.25, 0.75]])
        curve.add(4.25, gradient_norm=0.5)
        curve.sync()
    assert len(recorded_losses(path)) == 2
    assert path.read_bytes().count(before) == 1
    path.write_bytes(path.read_bytes().replace(before, after))
    assert recorded_losses(path) == []


def test_steps_after_a_checkpoint_and_a_cut_curve_are_read(tmp_path: Path) -> None:
    path = tmp_path / "loss_curve.jsonl"
    with LossCurve(path) as curve:
        for loss in LOSSES:
            curve.add(loss)
        curve.sync()
        curve.add(2.5)
    with LossCurve(path) as curve:
        assert curve.steps_done == len(LOSSES) + 1
        curve.truncate(2)
    assert len(recorded_losses(path)) == 2


def a_token_of_more_bytes(document: dict[str, object]) -> None:
    document["token_bytes"] = [2, *document["token_bytes"][1:]]  # type: ignore[index]


def longer_text(document: dict[str, object]) -> None:
    document["rows"]["train"]["text_bytes"] += 1  # type: ignore[index]


def another_digest(document: dict[str, object]) -> None:
    document["digest"] = "0" * 64


def no_digest_of_its_own(document: dict[str, object]) -> None:
    del document["sha256"]


@pytest.mark.parametrize("change", [a_token_of_more_bytes, longer_text, another_digest, no_digest_of_its_own])
def test_a_changed_manifest_of_tokens_is_not_used(change: Callable[[dict[str, object]], None], tmp_path: Path) -> None:
    """Bits per byte are counted with its numbers. The corpus is written anew."""
    folder = tmp_path / "data"
    write_corpus(corpus(), folder)
    manifest = folder / MANIFEST_NAME
    document = json.loads(manifest.read_bytes())
    change(document)
    manifest.write_text(json.dumps(document))
    with pytest.raises(StorageError):
        map_corpus(folder)
    assert find_corpus(folder) is None
    write_corpus(corpus(), folder)
    found = map_corpus(folder)
    assert np.array_equal(found.token_bytes, corpus().token_bytes)
    assert found.digest == corpus().digest


class Redirects(BaseHTTPRequestHandler):
    """An authority that sends everybody elsewhere."""

    to = ""

    def do_POST(self) -> None:
        self.send_response(307 if self.to.startswith("http") else 302)
        self.send_header("Location", self.to)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"followed")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("to", ["file:///etc/hostname", "ftp://127.0.0.1/x", "/elsewhere", "http://127.0.0.1:1/"])
def test_an_authority_sends_nobody_elsewhere(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(Redirects, "to", to)
    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StampError):
            seal._post(f"http://127.0.0.1:{server.server_port}/", b"query")
        server.shutdown()


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:text/plain,x", "//x", "HTTP+file://x"])
def test_an_authority_is_asked_over_http_only(url: str) -> None:
    with pytest.raises(StampError):
        seal._post(url, b"query")
