"""Registrations kept as bytes verify with every version of the tool."""

from pathlib import Path

from registration_factory import make_registration

from marin_scaling.preregistration.log import read_log
from marin_scaling.preregistration.registry import registration_folders, signers_path
from marin_scaling.preregistration.signing.sshsig import parse_signature
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import log_step

HERE = Path(__file__).parent


def test_a_kept_registration_still_verifies():
    """A new version of the tool never makes an old promise unreadable."""
    [folder] = registration_folders(HERE / "preregistration-v1")
    steps = verify_folder(folder, allowed_signers=signers_path(folder)).steps
    assert [step.what for step in steps if step.compared] == ["statement", "subjects", "signature", "forecast", "run"]


def test_a_kept_amendment_still_verifies():
    """With the statement beside which it lies, and the log that has both."""
    [folder] = registration_folders(HERE / "amendment-v1")
    steps = {step.what: step.evidence for step in verify_folder(folder, allowed_signers=signers_path(folder)).steps}
    assert steps["amend-1"].startswith("by ada@example.org with SHA256:")
    assert steps["amend-1"].endswith(" at 2026-11-20T09:30:00Z, after 200 steps: two more budgets were trained")
    assert log_step(folder, log=read_log(folder.parent)).evidence.startswith("lines register 1, amend 2 of 2")


def test_a_kept_seal_and_kept_notices_still_verify():
    """The seal that was opened, each kind of notice, and the log that has them all."""
    [folder] = registration_folders(HERE / "seal-and-notices-v1")
    steps = {step.what: step.evidence for step in verify_folder(folder, allowed_signers=signers_path(folder)).steps}
    assert steps["sealed"].startswith("this statement, by ada@example.org at 2026-11-20T08:30:00Z, to be shown by 2026-12-20")
    assert steps["deviate"].startswith("with SHA256:")
    assert steps["deviate"].endswith(", by ada@example.org at 2026-11-22T08:30:00Z: from step 80: the learning rate was halved")
    assert {"withdraw", "void"} <= steps.keys()
    said = "lines seal 1, register 2, reveal 3, notice 4, notice 5, notice 6 of 6"
    assert log_step(folder, log=read_log(folder.parent)).evidence.startswith(said)


def test_the_same_input_signs_to_the_same_kind_of_file(tmp_path):
    """The signer's key and the form of the file are those of the kept one; only the promise may differ between versions."""
    kept = HERE / "preregistration-v1" / "2026-11-20-tiny-target" / "statement.json.sig"
    new = make_registration(tmp_path).folder / "statement.json.sig"
    old_signature, new_signature = (parse_signature(path.read_bytes(), name=path.name) for path in (kept, new))
    assert old_signature.public_key.wire == new_signature.public_key.wire
    assert old_signature.namespace == new_signature.namespace == "preregistration@marin-scaling"
