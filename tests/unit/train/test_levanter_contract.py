"""What this project relies on in Levanter, held on each pinned version by training a tiny model for real."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from real_training import save_each_step, stop_at, trained
from run_factory import corpus, rung_spec

from marin_scaling.ladder.config import Compute
from marin_scaling.ladder.fit_check import training_memory_bytes
from marin_scaling.recipe.base import RungPlan
from marin_scaling.recipe.quickstart import QuickstartMoeRecipe, QuickstartRecipe
from marin_scaling.run.spec import RunSpec

pytest.importorskip("levanter", reason="the train extra is not installed")
pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]


def losses_of(spec: RunSpec, work_dir: Path) -> list[float | None]:
    result = trained(spec, work_dir)
    return [row.train_loss_nats_per_token for row in result.loss_curve.history(spec_digest=spec.digest).rows]


@pytest.mark.parametrize(
    ("name", "constant_norm"),
    [
        ("adamH", "matrix"),
        ("muonH", "slice"),
        pytest.param("adamH", "slice", marks=pytest.mark.nightly),
        pytest.param("muonH", "matrix", marks=pytest.mark.nightly),
    ],
)
def test_our_step_is_levanters_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constant_norm: Literal["matrix", "slice"], name: Literal["adamH", "muonH"]
) -> None:
    """On the same batches, our compiled step with its rates from outside gives the losses of Levanter's own `Trainer`: where
    the norm of matrices is kept, with scanned layers, as Marin's are."""
    import haliax as hax
    import jax.numpy as jnp
    from levanter.models.lm_model import LmExample
    from levanter.trainer import Trainer, initialize

    from marin_scaling.train import levanter_config
    from marin_scaling.train.levanter_config import trainer_config
    from marin_scaling.train.optimizer import levanters_schedule
    from marin_scaling.train.step import initial_state, language_model_loss
    from marin_scaling.train.train import training_batches

    spec, scanned, settings = rung_spec(train_steps=12), constant_norm == "matrix", levanter_config.model_settings
    changes = {"name": name, "constant_norm": constant_norm}
    spec = spec.model_copy(update={"optimizer": spec.optimizer.model_copy(update=changes)})
    config = trainer_config(spec, work_dir=tmp_path / "levanter")
    initialize(config)
    optimizer = levanters_schedule(spec.optimizer).build(spec.train_steps)
    axes = (hax.Axis("batch", spec.batch_size), hax.Axis("position", spec.model.seq_len))
    weights = np.ones([axis.size for axis in axes], np.float32)
    weights[:, -1] = 0.0
    examples = (
        LmExample(tokens=hax.named(jnp.asarray(tokens), axes), loss_weight=hax.named(jnp.asarray(weights), axes))
        for tokens in training_batches(spec, corpus().train, first_step=0)
    )
    with Trainer(config, optimizer, language_model_loss(spec.optimizer.z_loss_weight), add_default_hooks=False) as trainer:
        with monkeypatch.context() as patch:
            patch.setattr(levanter_config, "model_settings", lambda spec: settings(spec) | {"scan_layers": scanned})
            state = initial_state(trainer, spec, optimizer)
        levanters = [float(info.loss) for info in trainer.training_steps(state, examples)]
    assert losses_of(spec, tmp_path / "ours") == pytest.approx(levanters, rel=1e-5)
    assert levanters[-1] < levanters[0]


def test_runs_of_a_shape_that_share_programs_in_a_process_do_not_see_each_other(tmp_path: Path) -> None:
    """With rates, epsilon, seed and length of their own, each has the losses that it has in a process that compiled nothing."""
    from marin_scaling.train import step as levanter_step

    first = rung_spec(train_steps=6)
    rates = {"learning_rate": 0.02, "adam_learning_rate": 0.001, "epsilon": 1e-4}
    second = rung_spec(train_steps=9, seed=7, optimizer=first.optimizer.model_copy(update=rates))
    alone = []
    for number, spec in enumerate((first, second)):
        levanter_step._PROGRAMS.clear()
        alone.append(losses_of(spec, tmp_path / f"alone-{number}"))
    after = losses_of(first, tmp_path / "after")
    assert [after, losses_of(second, tmp_path / "last")] == alone
    assert len({losses[0] for losses in alone}) == 2
    assert [kind for kind, *_ in levanter_step._PROGRAMS] == ["beginning", "step", "evaluation"]


def test_levanters_model_has_the_parameters_we_count(tmp_path: Path) -> None:
    """The built model holds exactly `params_total` numbers."""
    spec = rung_spec(train_steps=1)
    result = trained(spec, tmp_path)
    assert result.params_total == spec.model.shape().params_total


def reserved_bytes(plan: RungPlan, work_dir: Path, *, compute: Compute | None = None) -> float:
    """Arguments, results and intermediate arrays of the compiled step of this plan, as XLA has them."""
    from levanter.trainer import Trainer, initialize

    from marin_scaling.run.plan import model_of, optimizer_of
    from marin_scaling.train.levanter_config import trainer_config
    from marin_scaling.train.optimizer import initial_optimizer
    from marin_scaling.train.step import compile_step, initial_state, language_model_loss

    spec = rung_spec(
        model=model_of(plan), optimizer=optimizer_of(plan), batch_size=plan.batch_size, compute=compute or Compute()
    )
    config = trainer_config(spec, work_dir=work_dir)
    initialize(config)
    optimizer = initial_optimizer(spec)
    with Trainer(config, optimizer, language_model_loss(0.0)) as trainer:
        step = compile_step(trainer, initial_state(trainer, spec, optimizer), spec)
        tokens = np.zeros((plan.batch_size, plan.shape.seq_len), np.int32)
        found = step._program.lower(step._leaves, tokens, step._rates[0]).compile().memory_analysis()
    return float(found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes)


@pytest.mark.parametrize(("hidden_dim", "num_layers", "batch_size"), [(16, 2, 16), (64, 2, 32), (64, 4, 16)])
def test_the_memory_of_a_step_is_what_xla_reserves(tmp_path: Path, hidden_dim: int, num_layers: int, batch_size: int) -> None:
    """The estimate lies up to a quarter above."""
    recipe = replace(QuickstartRecipe(), num_layers=num_layers, batch_size=batch_size)
    plan = recipe.plan(budget_flops=1e13, hidden_dim=hidden_dim)
    assert 1.0 < training_memory_bytes(plan) / reserved_bytes(plan, tmp_path) < 1.25


@pytest.mark.parametrize(
    ("compute", "seq_len"),
    [
        (Compute(sequences_at_a_time=8), 128),
        (Compute(attention="flash"), 2048),
        (Compute(attention="flash", sequences_at_a_time=1), 2048),
    ],
)
def test_memory_that_a_ladder_saves_is_saved(tmp_path: Path, compute: Compute, seq_len: int) -> None:
    """The estimate lies between a twentieth below and a third above."""
    recipe = replace(QuickstartRecipe(), num_layers=4, batch_size=4096 // seq_len, seq_len=seq_len)
    plan = recipe.plan(budget_flops=1e14, hidden_dim=64)
    assert 0.95 < training_memory_bytes(plan, compute) / reserved_bytes(plan, tmp_path, compute=compute) < 1.33


@pytest.mark.parametrize("hidden_dim", [16, 64])
def test_on_a_cpu_a_mixtures_step_reserves_up_to_two_and_a_half_times_the_estimate(tmp_path: Path, hidden_dim: int) -> None:
    """Because it holds two ways through the experts; the estimate is of the ragged one."""
    plan = QuickstartMoeRecipe().plan(budget_flops=1e13, hidden_dim=hidden_dim)
    assert 1.5 < reserved_bytes(plan, tmp_path) / training_memory_bytes(plan) < 2.5


def test_the_schedule_warms_up_stays_and_decays(tmp_path: Path) -> None:
    """The rates given to the step are Levanter's schedule: up in the first tenth, flat, down to zero in the last four."""
    from marin_scaling.train.optimizer import scheduled_rates

    spec = rung_spec(train_steps=100)
    matrix, adam = scheduled_rates(spec.optimizer, train_steps=100)
    assert matrix[0] < matrix[5] < matrix[10]
    assert matrix[10:59] == pytest.approx(spec.optimizer.learning_rate)
    assert adam[10:59] == pytest.approx(spec.optimizer.adam_learning_rate)
    assert matrix[99] < 0.05 * spec.optimizer.learning_rate


def test_a_run_stopped_after_a_checkpoint_ends_with_the_same_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: stopped in the middle, resumed from the checkpoint, the losses are those of an uninterrupted run."""
    spec = rung_spec(train_steps=40)
    uninterrupted = losses_of(spec, tmp_path / "whole")
    save_each_step(monkeypatch)
    stop_at(25, spec, tmp_path / "parts")
    seen: list[int] = []
    trained(spec, tmp_path / "parts", on_step=lambda step, _loss: seen.append(step))
    assert 1 < seen[0] <= 25
    assert losses_of(spec, tmp_path / "parts") == uninterrupted


def test_a_save_that_takes_long_is_repeated_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 10 seconds 190 later, so that it takes a twentieth of the time; a short one as soon as checkpoints are due."""
    import marin_scaling.train.train as module

    monkeypatch.setattr(module.time, "monotonic", lambda: 1_010.0)
    assert module._next_time(1_000.0) == pytest.approx(1_200.0)
    assert module._next_time(1_009.9) == 1_010.0 + module.CHECKPOINT_SECONDS


def test_a_run_whose_curve_lost_lines_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that is ahead of the curve, as after a power cut, is not used: no step is missing in the end."""
    spec, curve = rung_spec(train_steps=12), tmp_path / "parts" / "loss_curve.jsonl"
    save_each_step(monkeypatch)
    stop_at(8, spec, tmp_path / "parts")
    curve.write_bytes(b"".join(curve.read_bytes().splitlines(keepends=True)[:3]) + bytes(40))
    seen: list[int] = []
    notes: list[str] = []
    result = trained(spec, tmp_path / "parts", on_step=lambda step, _loss: seen.append(step), on_note=notes.append)
    assert "training restarts" in notes[0]
    assert seen == list(range(1, 13))
    assert [row.step for row in result.loss_curve.history(spec_digest=spec.digest).rows] == list(range(12))


def settled_checkpoint(work_dir: Path) -> Path:
    """The one checkpoint that is left when Levanter's threads have written the newest and removed those before it."""
    for _ in range(300):
        found = list(work_dir.glob("checkpoints/*/step-*"))
        if len(found) == 1 and (found[0] / "metadata.json").exists():
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"not one checkpoint after 30 s: {found}")


def test_a_checkpoint_of_another_run_of_the_same_shape_is_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a run's checkpoints lies its spec, with the digest of its statement: one run does not go on from another's."""
    monkeypatch.setattr("marin_scaling.train.train.CHECKPOINT_SECONDS", 0.0)
    bound, other = (rung_spec(train_steps=12, statement_sha256=digest * 64) for digest in "ab")
    trained(other, tmp_path)
    saved = tmp_path / "checkpoints"
    assert json.loads((saved / other.directory_name / "spec.json").read_bytes())["statement_sha256"] == "b" * 64
    (saved / other.directory_name).rename(saved / bound.directory_name)
    seen: list[int] = []
    notes: list[str] = []
    trained(bound, tmp_path, on_step=lambda step, _loss: seen.append(step), on_note=notes.append)
    assert seen == list(range(1, 13))
    assert notes[0].startswith("its checkpoints belong to another run and were moved to ")


@pytest.mark.parametrize(
    "damage", ["changed", "another run's", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("short", "empty"))]
)
def test_a_checkpoint_that_cannot_be_read_is_set_aside_and_the_run_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """With a note that says where it is; in the end the curve is whole."""
    spec = rung_spec(train_steps=12)
    wider = rung_spec(train_steps=12, model=spec.model.model_copy(update={"hidden_dim": 20}))
    save_each_step(monkeypatch)
    stop_at(8, wider if damage == "another run's" else spec, tmp_path)
    newest = settled_checkpoint(tmp_path)
    if damage == "short":
        for part in newest.glob("d/*"):
            part.write_bytes(part.read_bytes()[:10])
    elif damage == "changed":
        assert newest.with_name(f".{newest.name}.sha256").exists()
        largest = max(newest.glob("d/*"), key=lambda part: part.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[len(content) // 2] ^= 0x40
        largest.write_bytes(content)
    elif damage == "empty":
        (newest / "metadata.json").write_bytes(b"")
    else:
        (tmp_path / "checkpoints" / wider.directory_name).rename(tmp_path / "checkpoints" / spec.directory_name)
        (tmp_path / "checkpoints" / spec.directory_name / "spec.json").unlink()
    notes: list[str] = []
    result = trained(spec, tmp_path, on_note=notes.append)
    assert [row.step for row in result.loss_curve.history(spec_digest=spec.digest).rows] == list(range(12))
    (note,) = notes
    assert note.startswith("its checkpoint cannot be used and was moved to ")
    assert list(tmp_path.glob(f"checkpoints/{spec.directory_name}-damaged-1/step-*"))


def test_a_half_removed_older_checkpoint_is_no_reason_to_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process leaves it that was killed while it removed one: the run goes on from the newest, which is whole."""
    spec = rung_spec(train_steps=12)
    save_each_step(monkeypatch)
    stop_at(8, spec, tmp_path)
    newest = settled_checkpoint(tmp_path)
    older = newest.with_name("step-0")
    older.mkdir()
    said = json.loads((newest / "metadata.json").read_bytes())
    (older / "metadata.json").write_text(json.dumps({**said, "step": 0}), encoding="utf-8")
    older.with_name(".step-0.sha256").write_bytes(b"0" * 64)
    seen: list[int] = []
    notes: list[str] = []
    trained(spec, tmp_path, on_step=lambda step, _: seen.append(step), on_note=notes.append)
    assert (notes, seen, newest.name) == (["resuming from step 7 of 12"], list(range(8, 13)), "step-6")


def test_when_a_run_has_ended_its_last_checkpoint_is_whole_and_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written behind the back of whoever trains or cleans up in that folder next."""
    save_each_step(monkeypatch)
    spec = rung_spec(train_steps=12)
    trained(spec, tmp_path)
    folder = tmp_path / "checkpoints" / spec.directory_name
    assert (folder / "step-11" / "metadata.json").exists()
    assert (folder / ".step-11.sha256").exists()


def test_a_diverged_run_is_a_result(tmp_path: Path) -> None:
    """A loss that is no longer finite ends the run with a status and without a number."""
    spec = rung_spec(train_steps=40)
    wild = spec.optimizer.model_copy(update={"adam_learning_rate": 1e30, "warmup_fraction": 0.0})
    result = trained(spec.model_copy(update={"optimizer": wild}), tmp_path)
    assert result.bits_per_byte is None
    assert result.loss_curve.steps_done < 40


def test_a_run_that_ends_worse_than_guessing_diverged_and_keeps_its_curve(tmp_path: Path) -> None:
    """Every loss is a number; the note says which, and what guessing among 256 bytes comes to."""
    spec, notes = rung_spec(train_steps=40), []
    wild = spec.optimizer.model_copy(update={"adam_learning_rate": 1e4, "warmup_fraction": 0.0})
    spec = spec.model_copy(update={"optimizer": wild})
    result = trained(spec, tmp_path, on_note=notes.append)
    assert (result.bits_per_byte, result.loss_curve.steps_done) == (None, 40)
    assert None not in [row.train_loss_nats_per_token for row in result.loss_curve.history(spec_digest=spec.digest).rows]
    (note,) = notes
    assert "diverged" in note


def test_text_is_not_repeated(tmp_path: Path) -> None:
    """A run that wants more tokens than there are is refused with both numbers."""
    from marin_scaling.errors import DataError

    with pytest.raises(DataError, match="needs 128000 tokens; the training data have 100000"):
        trained(rung_spec(train_steps=1000), tmp_path)
