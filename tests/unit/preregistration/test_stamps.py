"""A third party says when a signature was there: a local authority made with OpenSSL, which is what a public one is, too."""

import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from registration_factory import make_registration, store_run
from time_authority import answer, make_authority, openssl
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import StampError, VerificationError
from marin_scaling.preregistration.events import seal
from marin_scaling.preregistration.events.seal import read_stamp, request_stamp, reveal, whole_folder
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.outcome import State
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verdict import check_all
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step, policy_steps

pytest.importorskip("rfc3161_client", reason="the timestamp extra is not installed")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A folder with a key and certificates, and the address where it answers."""

    folder: Path
    url: str

    @property
    def root(self) -> bytes:
        """Its root certificate."""
        return (self.folder / "root.pem").read_bytes()


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    """One that answers on this machine."""
    folder = make_authority(tmp_path / "authority")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply = answer(folder, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Authority(folder=folder, url=f"http://127.0.0.1:{server.server_port}/")
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    """A preregistration made now, in a registry that trusts the authority."""
    folder = make_registration(tmp_path, created_at=datetime.now(UTC) - timedelta(minutes=1)).folder
    (folder.parent / "tsa_roots.pem").write_bytes(authority.root)
    return folder


def stamp(folder: Path, authority: Authority) -> Path:
    """By the command, as typed."""
    said = CliRunner().invoke(app, ["registry", "stamp", str(folder), "--tsa", authority.url], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    return folder / "stamp-1.tsr"


def evidence(folder: Path) -> tuple[bool, str]:
    """The step of the stamps."""
    steps = verify_folder(folder, allowed_signers=signers_path(folder)).steps
    [step] = [step for step in steps if step.what == "stamp"]
    return step.compared, step.evidence


def test_a_stamp_is_asked_for_verified_and_kept(folder: Path, authority: Authority) -> None:
    """And logged."""
    stamp(folder, authority)
    compared, said = evidence(folder)
    assert compared
    assert said.startswith("statement.json.sig was there at 20")
    assert "stamp 2" in log_step(folder, log=read_log(folder.parent)).evidence


def test_a_seal_is_stamped_and_the_stamp_speaks_for_what_is_revealed(tmp_path: Path, authority: Authority) -> None:
    """It is over the seal's signature, before and after; a policy that asks for a stamp has it already while it is sealed."""
    made = datetime.now(UTC) - timedelta(minutes=1)
    folder = make_registration(tmp_path, created_at=made, reveal_by=made + timedelta(days=9)).folder
    (folder.parent / "tsa_roots.pem").write_bytes(authority.root)
    (folder.parent / "policy.yaml").write_text(f"since: {made:%Y-%m-%d}\nstamps: 1\n")
    whole, rules = whole_folder(folder), {"allowed_signers": signers_path(folder)}
    with pytest.raises(VerificationError, match="asks for 1 time stamp,"):
        policy_steps(verify_folder(whole, **rules), stamped=folder)
    stamp(folder, authority)
    assert evidence(folder)[1].startswith("seal.json.sig was there at 20")
    assert policy_steps(verify_folder(whole, **rules), stamped=folder)[0].evidence.count("1 stamp of 1 asked") == 1
    reveal(folder)
    assert evidence(folder)[1].startswith("seal.json.sig was there at 20")
    assert policy_steps(verify_folder(folder, **rules))[0].evidence.count("1 stamp of 1 asked") == 1


@pytest.mark.parametrize("late", [True, False])
def test_a_run_that_began_before_the_first_stamp_cannot_answer_the_forecast(
    tmp_path: Path, authority: Authority, late: bool
) -> None:
    """Though it began after the time that the registrant wrote down."""
    made = datetime.now(UTC) - timedelta(minutes=5)
    registration = make_registration(tmp_path, created_at=made)
    (registration.folder.parent / "tsa_roots.pem").write_bytes(authority.root)
    stamp(registration.folder, authority)
    began = made + timedelta(minutes=1) if late else datetime.now(UTC) + timedelta(minutes=1)
    times = {"started_at": f"{began:%Y-%m-%dT%H:%M:%SZ}", "finished_at": f"{began + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"}
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, **times)
    [verdict] = check_all([registration.folder], runs_dir=tmp_path / "runs", checked_at=datetime.now(UTC))
    assert verdict.state is (State.REFUSED if late else State.HELD)
    assert ("before the first stamp of" in verdict.sentence) is late


def test_without_the_extra_it_is_said_that_stamps_were_not_read(
    folder: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is verified all the same."""
    stamp(folder, authority)
    monkeypatch.setattr("marin_scaling.preregistration.events.seal.can_read_stamps", lambda: False)
    assert evidence(folder) == (False, "1 not read: the extra timestamp is not installed")


def test_an_authority_that_does_not_answer_writes_nothing(folder: Path) -> None:
    """Nor one that answers with a page."""
    with pytest.raises(StampError, match="did not answer"):
        request_stamp(b"signature", url="http://127.0.0.1:9/", roots=folder.parent / "tsa_roots.pem")
    with pytest.raises(StampError, match="is no web address"):
        request_stamp(b"signature", url="file:///etc/hostname", roots=folder.parent / "tsa_roots.pem")
    assert not (folder / "stamp-1.tsr").exists()


@pytest.mark.parametrize("reply", [b"", b"<html>", b"\x30\x80", b"0" * (seal.MAX_REPLY_BYTES + 1)])
def test_bytes_that_are_no_answer_are_refused(folder: Path, reply: bytes) -> None:
    """With the name of the file."""
    with pytest.raises(VerificationError, match=r"x\.tsr"):
        read_stamp(reply, signature=b"signature", roots=folder.parent / "tsa_roots.pem", name="x.tsr")


def test_stock_openssl_reads_a_stamp_as_the_page_for_sceptics_says(folder: Path, authority: Authority) -> None:
    """The command there, word for word, in the folder of a preregistration."""
    stamp(folder, authority)
    page = Path(__file__).parents[3] / "site" / "how-to" / "verify-a-preregistration.md"
    (command,) = re.findall(r"`(openssl ts -verify [^`]+)`", page.read_text())
    openssl(folder, *command.split()[1:])
    (folder / "statement.json.sig").write_bytes(b"another")
    with pytest.raises(subprocess.CalledProcessError):
        openssl(folder, *command.split()[1:])
