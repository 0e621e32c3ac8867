"""Levanter's own command trains an emitted rung to its end, and from the same initial weights our training gives its losses.

Ours trains in the test's own process, so this module stands after those that start processes by forking.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

from run_factory import corpus, mixture_spec, rung_spec  # noqa: E402

from marin_scaling.errors import DocumentError, Severity  # noqa: E402
from marin_scaling.ladder.config import Compute  # noqa: E402
from marin_scaling.run.spec import RunSpec  # noqa: E402
from marin_scaling.run.trackers import read_tracked_runs  # noqa: E402
from marin_scaling.speedrun.checks import accounting_findings  # noqa: E402
from marin_scaling.speedrun.from_logs import submission_from_logs  # noqa: E402
from marin_scaling.speedrun.submission import Author  # noqa: E402


def state_as_train_lm_begins(trainer: Any, spec: RunSpec, optimizer: Any) -> Any:
    """Our first state but for the weights, which that command draws from the third of four keys of the seed."""
    import equinox as eqx
    import haliax as hax
    import jax
    from levanter.trainer_state import TrainerState

    from marin_scaling.train.levanter_config import model_config

    _, _, key_model, key_training = jax.random.split(jax.random.PRNGKey(spec.seed), 4)
    vocabulary = hax.Axis("vocab", spec.model.vocab_size)
    model = eqx.filter_jit(lambda key: model_config(spec).build(vocabulary, key=key))(key_model)
    return TrainerState.init(optimizer, model, key=key_training, is_trainable=True, mp=trainer.mp)


def logged_losses(log: Path) -> dict[int, float]:
    """Training losses by step, as the command's JSON log has them."""
    events = [json.loads(line[line.index('{"tracker"') :]) for line in log.read_text().splitlines() if '{"tracker"' in line]
    return {each["step"]: each["metrics"]["train/loss"] for each in events if "train/loss" in each.get("metrics", {})}


def trained_by_both(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any, Any]:
    """Train an emitted rung by the emitted command and by us, and compare what both log; return its log, its run, and ours.

    Every loss that it logs, and the last evaluation, agree to what float32 and the order of sums leave (rel 1e-5).
    """
    import marin_scaling.train.train as module
    from marin_scaling.train.levanter_yaml import command, emit_levanter

    folder = tmp_path / "tiny"
    emit_levanter([spec], corpus=corpus(), folder=folder)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
    started = [sys.executable, *command(spec).split()[1:]]
    done = subprocess.run(started, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (log,) = (folder / "logs").glob("*.log")
    (run,) = read_tracked_runs(str(log))
    assert run.state == "finished"

    monkeypatch.setattr(module, "initial_state", state_as_train_lm_begins)
    ours = module.train(spec, corpus=corpus(), work_dir=tmp_path / "ours", on_step=lambda _step, _loss: None)
    rows = ours.loss_curve.history(spec_digest=spec.digest).rows
    theirs = logged_losses(log)
    assert len(theirs) >= spec.train_steps - 2
    for step, loss in theirs.items():
        assert loss == pytest.approx(rows[step].train_loss_nats_per_token, rel=1e-5)
    assert run.metrics["eval/loss"] * 1.4426950408889634 == pytest.approx(ours.bits_per_byte, rel=1e-5)
    assert run.config["trainer/id"] == spec.directory_name
    return log, run, ours


@pytest.mark.parametrize("name", ["adamH", pytest.param("muonH", marks=pytest.mark.nightly)])
def test_the_emitted_command_trains_a_mixture_of_experts_as_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With either optimizer, its routers' biases are set in each step."""
    optimizer = mixture_spec().optimizer.model_copy(update={"name": name})
    trained_by_both(mixture_spec(train_steps=40, seed=5, optimizer=optimizer), tmp_path, monkeypatch)


@pytest.mark.parametrize("constant_norm", ["matrix", pytest.param("slice", marks=pytest.mark.nightly)])
def test_levanters_command_trains_an_emitted_rung_as_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constant_norm: str
) -> None:
    """Where the norm of matrices is kept, its layers are scanned and, as asked, recomputed; its log becomes a submission."""
    optimizer = rung_spec().optimizer.model_copy(update={"constant_norm": constant_norm})
    spec = rung_spec(train_steps=40, seed=5, optimizer=optimizer, compute=Compute(recompute=constant_norm == "matrix"))
    log, run, ours = trained_by_both(spec, tmp_path, monkeypatch)

    about: dict[str, Any] = {"name": "ada/logged", "track": "free", "rules": None, "author": Author(name="Ada")}
    about |= {"description": "", "trials": 1}
    with pytest.raises(DocumentError, match="passthrough"):  # for whose tokens the command knows no bytes
        submission_from_logs([str(log)], **about)
    named = tmp_path / "named.log"
    named.write_text(log.read_text().replace('"passthrough"', '"bytes"'))
    made = submission_from_logs([str(named)], **about)
    assert made.compute.model_flops == pytest.approx(spec.flops, rel=1e-9)
    assert made.data.trained_tokens == spec.trained_tokens
    assert made.model.params_total == ours.params_total
    assert (made.training.batch_size, made.training.steps) == (spec.batch_size, spec.train_steps)
    (seed,) = made.seeds
    assert seed.seed == spec.seed
    assert seed.bits_per_byte == run.metrics["eval/validation/bpb"]
    assert not [each for each in accounting_findings(made) if each.severity is Severity.ERROR]
