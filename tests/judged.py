"""What the verifier says to a mutated registration, and whether it should: the judge of `mutated_registry`'s inputs.

A traceback is a fault, and so is an input that is accepted though its rule (`allowed_changes`) does not say that it may be.
Ladders are compared with their runs; they are not fitted again.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allowed_changes import why_allowed
from mutated_registry import SIGNATURES, Ground, Input
from registration_factory import CREATED_AT

from marin_scaling.errors import MarinScalingError
from marin_scaling.preregistration.events.seal import read_stamp
from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.registry import registration_folders, signers_path
from marin_scaling.preregistration.signing.sshsig import NAMESPACE
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step, require_whole


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the verifier said: `refused` (the error), `accepted` (why that is right, None where it is not), or a traceback."""

    said: str
    reason: str | None
    seconds: float

    @property
    def is_fault(self) -> bool:
        """Whether it should not have said so."""
        return self.said == "traceback" or (self.said == "accepted" and self.reason is None)


def judge(ground: Ground, drawn: Input) -> Verdict:
    """Put an input into its ground, verify, and take it out again."""
    verify = _VERIFY.get(drawn.kind, _verify_folder)
    with _in_place(drawn.files):
        began = time.perf_counter()
        try:
            verify(ground, drawn)
        except MarinScalingError as error:
            return Verdict(said="refused", reason=error.what, seconds=time.perf_counter() - began)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return Verdict(said="traceback", reason=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - began)
        seconds = time.perf_counter() - began
        return Verdict(said="accepted", reason=_why_right_if_readable(ground, drawn), seconds=seconds)


@contextmanager
def _in_place(files: Mapping[Path, bytes]) -> Iterator[None]:
    before = {path: path.read_bytes() for path in files}
    try:
        for path, content in files.items():
            path.write_bytes(content)
        yield
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def _verify_folder(ground: Ground, drawn: Input) -> None:
    place = drawn.changed.relative_to(ground.root).parts[0]
    folder = ground.folder(place)
    verify_folder(folder, allowed_signers=signers_path(folder), runs_dir=ground.root / place / "runs")


def _verify_log(ground: Ground, drawn: Input) -> None:
    """As `marin-scale verify all` does."""
    log = read_log(drawn.changed.parent)
    for folder in registration_folders(drawn.changed.parent):
        log_step(folder, log=log)
    require_whole(drawn.changed.parent, log=log)


def _verify_stamp(ground: Ground, drawn: Input) -> None:
    _time_of(ground, drawn.changed.read_bytes())


def _time_of(ground: Ground, stamp: bytes) -> Any:
    assert ground.authority is not None
    signature = (ground.folder("settled") / "statement.json.sig").read_bytes()
    return read_stamp(stamp, signature=signature, roots=ground.authority / "root.pem", name="stamp.tsr")


_VERIFY: Mapping[str, Callable[[Ground, Input], None]] = {
    "log": _verify_log,
    "log, chained again": _verify_log,
    "stamp": _verify_stamp,
}


def _why_right_if_readable(ground: Ground, drawn: Input) -> str | None:
    try:
        return _why_right(ground, drawn)
    except (LookupError, TypeError, ValueError, AttributeError, MarinScalingError):
        return None  # of another form altogether


def _why_right(ground: Ground, drawn: Input) -> str | None:
    """Why an input may be accepted; None where it must not. It lies in its place."""
    if drawn.kind == "allowed_signers":
        return "stock ssh-keygen reads the same" if _ssh_keygen_agrees(drawn.changed, ground.folder("promised")) else None
    if drawn.kind == "stamp":
        now, then = _time_of(ground, drawn.changed.read_bytes()), _time_of(ground, drawn.before)
        return "the authority's signature and time; what differs it did not sign" if now == then else None
    if drawn.kind.startswith("log") and not drawn.changed.read_bytes():
        return "no log, of which verify says that it shows nothing"
    if drawn.kind.startswith("log"):
        before, after = ([json.loads(line) for line in raw.splitlines()] for raw in (drawn.before, drawn.changed.read_bytes()))
        return why_allowed("log.jsonl", before, after)
    if drawn.changed.suffix != ".json" or "not signed again" in drawn.kind + drawn.how:
        return None
    if drawn.kind == "statement that was sealed, signed again":
        return None
    is_opened_seal = drawn.changed == ground.folder("opened") / "seal.json"
    name = f"{drawn.changed.name}, opened" if is_opened_seal else drawn.changed.name
    return why_allowed(name, json.loads(drawn.before), json.loads(drawn.changed.read_bytes()))


def _ssh_keygen_agrees(signers: Path, folder: Path) -> bool:
    """Whether stock OpenSSH, too, lets those who signed sign, by this list, at the time of the statement."""
    when = f"verify-time={CREATED_AT:%Y%m%d%H%M%S}"
    for name, principal in SIGNATURES.items():
        asked = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", principal, "-n", NAMESPACE, "-s", str(folder / name)]
        content = (folder / "statement.json").read_bytes()
        done = subprocess.run(
            [*asked, "-O", when], input=content, capture_output=True, check=False, env={**os.environ, "TZ": "UTC"}
        )
        if done.returncode:
            return False
    return True
