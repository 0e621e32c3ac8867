"""From a key to the outcome, as the pages tell it: in a real git repository, with stock ssh-keygen, branch after branch."""

import html
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import SMALL_LADDER, make_repository, marin_scale_process
from git_repository import commit, git

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="openssh-client is not installed"),
]

ADA, BOB = "ada@example.org", "bob@example.org"


def said(root: Path, *arguments: object, status: int = 0) -> str:
    """What the command prints; it must end with that status."""
    done = marin_scale_process(*arguments, cwd=root)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def key_of(folder: Path, principal: str) -> Path:
    """A new key by stock ssh-keygen."""
    path = folder / principal.partition("@")[0]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", principal, "-f", path], check=True)
    return path


def allow(root: Path, key: Path, principal: str) -> None:
    """The line that the page for reviewers gives."""
    kind, encoded = key.with_suffix(".pub").read_text().split()[:2]
    with (root / "preregistrations" / "allowed_signers").open("a") as file:
        file.write(f'{principal} namespaces="preregistration@marin-scaling" {kind} {encoded}\n')


def merge(root: Path, branch: str) -> None:
    """What was reviewed becomes main."""
    commit(root)
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--ff-only", branch)


def begun(tmp_path: Path, *, policy: str) -> Path:
    """A repository as `init` leaves it, with a ladder and these rules."""
    root = make_repository(tmp_path / "repository", ladder=SMALL_LADDER)
    said(root, "init")
    (root / "preregistrations" / "policy.yaml").write_text(policy)
    git(root, "init", "-q", "-b", "main")
    commit(root)
    return root


def test_a_forecast_from_its_key_to_its_outcome(tmp_path: Path) -> None:
    """Each step is a branch that is reviewed against main, by its signers and under its policy, before it is merged."""
    root = begun(tmp_path, policy="since: 2026-01-01\nreviewers: 1\n")
    ada, bob = (key_of(tmp_path, who) for who in (ADA, BOB))

    git(root, "checkout", "-qb", "keys")
    allow(root, ada, ADA)
    allow(root, bob, BOB)
    trusted = re.sub("</?code>", "", said(root, "review", "--base", "main", "--markdown"))
    assert "first key of ada@example.org" in html.unescape(trusted)
    merge(root, "keys")

    git(root, "checkout", "-qb", "forecast")
    said(root, "preregister", "ladders/tiny.yaml", "--key", ada, "--as", ADA)
    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    assert "asks for 1 signature of reviewers" in said(root, "review", "--base", "main", "--markdown", status=1)
    said(root, "run", folder.name, status=1)
    said(root, "registry", "sign", folder.name, "--key", bob, "--as", BOB)
    review = said(root, "review", "--base", "main", "--markdown")
    assert "signed by ada@example.org" in html.unescape(re.sub("</?code>", "", review))
    assert "all 23 quantiles" in review
    merge(root, "forecast")

    git(root, "checkout", "-qb", "outcome")
    said(root, "run", folder.name)
    (line, *_) = said(root, "check", "all").splitlines()
    verdict = line.split()[1].rstrip(":")
    assert verdict in ("held", "missed")
    review = html.unescape(re.sub("</?code>", "", said(root, "review", "--base", "main", "--markdown")))
    assert re.search(rf"outcome\.json.* Its state: {verdict}", review)
    merge(root, "outcome")

    (folder / "outcome.json").unlink()
    assert "outcome.json was removed since main" in said(root, "review", "--base", "main", "--markdown", status=1)


@pytest.mark.nightly
def test_a_sealed_forecast_from_its_seal_to_its_outcome(tmp_path: Path) -> None:
    """Its run is trained while nobody else can read it; shown afterwards, it is judged as one that was open, and as old."""
    root = begun(tmp_path, policy="since: 2026-01-01\n")
    ada = key_of(tmp_path, ADA)
    allow(root, ada, ADA)
    commit(root)
    until = f"{datetime.now(UTC) + timedelta(days=90):%Y-%m-%d}"
    said(root, "preregister", "ladders/tiny.yaml", "--key", ada, "--as", ADA, "--seal-until", until)
    (folder,) = (path for path in (root / "preregistrations").iterdir() if path.is_dir())
    commit(root)
    assert not any((root / "preregistrations").rglob("statement.json"))
    assert f"to be shown by {until}" in said(root, "check", "all")

    policy = root / "preregistrations" / "policy.yaml"
    policy.write_text("since: 2026-01-01\nreviewers: 1\n")
    refused = marin_scale_process("run", folder.name, cwd=root)
    assert refused.returncode == 1
    assert "asks for 1 signature of reviewers" in refused.stderr
    policy.write_text("since: 2026-01-01\n")
    assert f"marin-scale registry reveal {folder.name}" in said(root, "run", folder.name)
    assert f"to be shown by {until}" in said(root, "check", "all")

    said(root, "registry", "reveal", folder.name)
    (line, *_) = said(root, "check", "all").splitlines()
    assert line.split()[1].rstrip(":") in ("held", "missed")
    commit(root)
    shutil.rmtree(root / ".marin-scaling")
    said(root, "verify", "all")
