"""`marin-scale export` refuses what it cannot export, before it reads any weights."""

import shutil
from pathlib import Path

import pytest
from command_line import assert_refused, marin_scale
from own_registrations import registered
from run_factory import record_of, rung_spec

from marin_scaling.run.spec import RunSpec
from marin_scaling.run.store import History, HistoryRow, add_run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's own targets and the records of two rungs, none with its weights; and a rung that was begun."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("bytes-dense", "bytes-moe"):
        shutil.copytree(ROOT / "runs" / name, copy / "runs" / name)
    shutil.copytree(ROOT / "preregistrations", copy / "preregistrations")
    for number, loss in enumerate((3.0, None)):
        record(copy, rung_spec(seed=number), loss=loss)
    begun = rung_spec(seed=2)
    (copy / ".marin-scaling" / "specs").mkdir(parents=True)
    (copy / ".marin-scaling" / "specs" / f"{begun.directory_name}.json").write_bytes(begun.to_bytes())
    return copy


def record(folder: Path, spec: RunSpec, *, loss: float | None) -> None:
    history = History(spec_digest=spec.digest, rows=(HistoryRow(step=0, train_loss_nats_per_token=5.5),))
    add_run(folder / "runs", spec=spec, record=record_of(spec, loss=loss, history=history), history=history)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("ffffffffffff", ["no run has a digest"]),
        (rung_spec(seed=2).directory_name, ["is not finished", "marin-scale ladder --keep-weights"]),
        (rung_spec(seed=1).directory_name, ["diverged"]),
    ],
)
def test_what_cannot_be_a_model_is_refused(folder: Path, run: str, said: list[str]) -> None:
    """A run that is not known, not finished or diverged; nothing is written."""
    assert_refused(marin_scale("export", run, "--to", "model", cwd=folder), *said)
    assert not (folder / "model").exists()


@pytest.mark.train
def test_how_to_get_weights_that_were_not_kept_is_said(folder: Path) -> None:
    """The run may be named by digits, by its folder, or by the preregistration that it answers."""
    pytest.importorskip("levanter", reason="the train extra is not installed")
    rung = rung_spec(seed=0).directory_name
    for name in (rung[:7], f"runs/tiny/{rung}", f"runs/tiny/{rung}/"):
        done = marin_scale("export", name, "--to", "model", cwd=folder)
        assert_refused(done, f"The weights of {rung} are missing", f"runs/tiny/{rung} away, train it again", "--keep-weights")
    for ladder in ("bytes-dense", "bytes-moe"):
        target = marin_scale("export", registered(ladder).name, "--to", "model", cwd=folder)
        assert_refused(target, "are missing", "marin-scale run")
