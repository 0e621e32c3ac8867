"""Forecasts of the training losses of a ladder's target: signed, fitted again, followed; on recorded runs of this project."""

import json
import shutil
from pathlib import Path

import pytest
from made_once import made_once
from own_registrations import answering_run, registered
from registration_factory import PRINCIPAL, signing_key

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.errors import VerificationError
from marin_scaling.fitting.fit import fit
from marin_scaling.forecast.backtest import backtest_of_fit
from marin_scaling.forecast.forecast import optimal_target
from marin_scaling.forecast.loss_curve import marks_of_steps
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.ladder_records import add_recorded_curve, recorded_curves
from marin_scaling.preregistration.preregister import documented, target_in
from marin_scaling.preregistration.register import Evidence, preregister_target, unbound_spec
from marin_scaling.preregistration.statement import parse_moment
from marin_scaling.preregistration.tracked_run import track
from marin_scaling.preregistration.verify.refit import verify_and_fit
from marin_scaling.run.table import read_run_table

LADDER = "bytes-dense"
ROOT = Path(__file__).parents[3]


def quiet(_: str) -> None:
    """Print nothing."""


def make(root: Path) -> None:
    """A repository with this project's dense ladder, and a forecast of its target with a curve."""
    shutil.copytree(ROOT / "runs" / LADDER, root / "runs" / LADDER)
    first = registered(LADDER)
    target, recipe = unbound_spec(target_in(first)), json.loads((first / "recipe.json").read_bytes())
    result = fit(read_run_table(root / "runs" / LADDER))
    run = optimal_target(result, target.flops, unique_tokens=target.unique_tokens)
    document, losses = documented(result, backtest_of_fit(result), target=run, on_message=quiet)
    curves = add_recorded_curve(document, result.rows, target=target, ladder_dir=root / "runs" / LADDER, losses=losses)
    preregister_target(
        Evidence(rows=result.rows, forecast=document, losses=losses, recipe=recipe, target=target, curves=curves),
        registry_dir=root / "preregistrations",
        key=signing_key(),
        principal=PRINCIPAL,
        slug="curve",
        created_at=parse_moment("2026-11-29T08:00:00Z"),
        promise=Promise(),
    )


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a signed forecast with the curve of its training losses."""
    shutil.copytree(made_once("bound-curves", make, factory=tmp_path_factory), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "preregistrations" / "2026-11-29-curve"


def test_the_curve_of_a_recorded_target_lies_in_its_band(folder: Path) -> None:
    """Its training losses at 20 marks, forecast from those of 16 rungs; `verify` forecasts them again."""
    (prediction,) = json.loads((folder / "forecast.json").read_bytes())["predictions"]
    run = answering_run(registered(LADDER))
    losses = [row.train_loss_nats_per_token for row in run.history().rows]
    marks = marks_of_steps(losses, train_steps=run.spec.train_steps)
    inside = [
        row["quantiles"]["0.05"] <= mark <= row["quantiles"]["0.95"]
        for row, mark in zip(prediction["curve"], marks, strict=True)
    ]
    assert len(inside) == 20
    assert sum(inside) >= 14
    steps = verify_and_fit(folder, allowed_signers=folder.parent / "allowed_signers", runs_dir=Path("runs")).steps
    fitted = next(step for step in steps if step.what == "fit")
    assert fitted.compared
    assert "16 curves" in fitted.evidence


def test_another_curve_than_that_of_the_records_is_refused(folder: Path) -> None:
    """The curve of one rung is not that of its history."""
    first = json.loads((folder / "ladder.json").read_bytes())["curves"]["runs"][0]
    history = Path("runs", LADDER, first["run"][:16], "history.json")
    document = json.loads(history.read_bytes())
    for row in document["rows"]:
        row["train_loss_nats_per_token"] *= 1.1
    raw = dump_canonical(document)
    record = json.loads((history.parent / "record.json").read_bytes())
    history.write_bytes(raw)
    (history.parent / "record.json").write_bytes(dump_canonical({**record, "history_sha256": sha256_hex(raw)}))
    with pytest.raises(VerificationError):
        verify_and_fit(folder, allowed_signers=folder.parent / "allowed_signers", runs_dir=Path("runs"))


def test_a_target_of_another_schedule_than_its_rungs_has_no_curve() -> None:
    """Its decay is shorter, which a ladder may declare."""
    first, runs = registered(LADDER), ROOT / "runs" / LADDER
    rows, target = (json.loads((first / f"{name}.json").read_bytes()) for name in ("ladder", "target"))
    assert recorded_curves(rows["rows"], ladder_dir=runs, target=target)
    target["optimizer"]["decay_fraction"] = 0.1
    assert recorded_curves(rows["rows"], ladder_dir=runs, target=target) is None


def test_a_run_in_training_is_followed_against_its_signed_curve(folder: Path) -> None:
    """A table of its losses up to the middle has ten marks."""
    run = answering_run(registered(LADDER))
    rows = [f"{row.step},{row.train_loss_nats_per_token}" for row in run.history().rows[: run.spec.train_steps // 2 + 1]]
    Path("loss.csv").write_text("step,loss\n" + "\n".join(rows) + "\n")
    found = track("loss.csv", folder.name, registry=folder.parent).followed
    assert found is not None
    assert len(found.marks) == 10
    assert len(found.signed) == 20
