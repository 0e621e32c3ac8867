"""Forecasts of the whole curve of an outside run: signed, verified, followed, kept with the outcome, drawn."""

import contextlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from made_once import made_once
from outside_factory import (
    KEY,
    LOSS,
    PRINCIPAL,
    RUN,
    TOKENS,
    register_outside,
    register_with_curves,
    restart,
    shape,
    target,
    write_curve_log,
    write_curves,
    write_files,
    write_log,
)
from text_log_factory import maxtext_log, megatron_log
from text_log_factory import write as write_lines
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import (
    LadderFileError,
    MarinScalingError,
    RunTableError,
    SigningError,
    UsageError,
    VerificationError,
)
from marin_scaling.forecast.tracking import followed_document, followed_text
from marin_scaling.preregistration.outside import preregister_table, record_outcome
from marin_scaling.preregistration.tracked_run import track_outside
from marin_scaling.preregistration.verify.refit import verify_and_fit
from marin_scaling.publish.forecast_page import forecast_page


def quiet(_: str) -> None:
    """Print nothing."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a signed forecast of a whole curve."""
    shutil.copytree(made_once("outside-curves", make, factory=tmp_path_factory), root, dirs_exist_ok=True)
    return next((root / "preregistrations").glob("*-hero"))


def make(root: Path) -> None:
    """A repository with such a forecast."""
    root.mkdir()
    register_with_curves(root)


def follow(folder: Path, *logs: Path | str):
    """Follow the run by its log."""
    return track_outside(folder.name, *logs, registry=folder.parent)


def signed_curve(folder: Path) -> dict[float, dict[str, float]]:
    """The signed quantiles by share of the run."""
    (prediction,) = json.loads((folder / "forecast.json").read_bytes())["predictions"]
    return {row["fraction"]: row["quantiles"] for row in prediction["curve"]}


def test_the_signed_curve_is_that_of_the_run(root: Path, folder: Path) -> None:
    """Known here: its medians are right to 1 %, and its end has the quantiles of the signed forecast."""
    rows = signed_curve(folder)
    assert len(rows) == 20
    assert all(abs(each["0.5"] / (LOSS * shape(fraction)) - 1) < 0.01 for fraction, each in rows.items())
    stated = json.loads((folder / "statement.json").read_bytes())["predicate"]["forecast"]["quantiles"]
    assert abs(rows[1.0]["0.05"] / stated["0.05"] - 1) < 1e-4


def test_verify_reads_the_curves_again_and_forecasts_again(root: Path, folder: Path) -> None:
    """Both tables are compared."""
    steps = {
        step.what: step
        for step in verify_and_fit(folder, allowed_signers=folder.parent / "allowed_signers", runs_dir=root / "runs").steps
    }
    assert "20 curves" in steps["ladder"].evidence
    assert steps["ladder"].compared


def test_without_the_table_of_curves_verify_says_so(root: Path, folder: Path) -> None:
    """The statement still holds; the curves were not compared."""
    (root / "curves.csv").unlink()
    found = verify_and_fit(folder, allowed_signers=folder.parent / "allowed_signers", runs_dir=root / "runs")
    assert not next(step for step in found.steps if step.what == "ladder").compared


def test_a_run_in_training_is_followed_against_its_band(root: Path, folder: Path) -> None:
    """At 60 % twelve marks are inside, and the end is forecast again from them, more narrowly."""
    found = follow(folder, write_curve_log(root, done=0.6))
    assert [inside for _, inside in found.marks.values()] == [True] * 12
    assert found.now.end[0.95] - found.now.end[0.05] < 0.6 * (found.end[0.95] - found.end[0.05])
    assert abs(found.now.end[0.5] / LOSS - 1) < 0.005
    assert found.verdict == "on forecast"


def test_a_run_above_its_band_is_off_forecast(root: Path, folder: Path) -> None:
    """With a loss 4 % above the forecast, every mark is outside."""
    found = follow(folder, write_curve_log(root, done=0.6, end=1.04 * LOSS))
    assert not any(inside for _, inside in found.marks.values())
    assert found.verdict == "off forecast: above"


def test_where_a_run_went_back_the_later_losses_count(root: Path, folder: Path) -> None:
    """A spike, and a restart before it."""
    log = write_curve_log(root, done=0.5)
    lines = log.read_text().splitlines()
    spiked = [f"{RUN},{step},9.9,{TOKENS * step / 2000}" for step in (1025, 1075)]
    log.write_text(
        "\n".join([*lines, *spiked, *lines[-1:], *write_curve_log(root, done=0.6).read_text().splitlines()[-4:]]) + "\n"
    )
    assert all(inside for _, inside in follow(folder, log).marks.values())


def test_progress_by_steps_needs_their_planned_number(root: Path, folder: Path) -> None:
    """A log without tokens is refused unless the target file has the steps."""
    write_files(root)
    log = root / "steps.csv"
    log.write_text(
        "\n".join([f"run,_step,{KEY}", *(f"{RUN},{step},{LOSS * shape(step / 2000)}" for step in range(50, 1001, 50))]) + "\n"
    )
    with pytest.raises(RunTableError, match="tokens"):
        follow(folder, log)


def test_progress_by_planned_steps(root: Path) -> None:
    """The same log, with the steps in the target file."""
    write_files(root, curves={"path": "curves.csv", "train_steps": 2000})
    write_curves(root)
    made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    log = root / "steps.csv"
    log.write_text(
        "\n".join([f"run,_step,{KEY}", *(f"{RUN},{step},{LOSS * shape(step / 2000)}" for step in range(50, 1001, 50))]) + "\n"
    )
    found = follow(made.folder.absolute(), log)
    assert (found.fraction, len(found.marks)) == (0.5, 10)


@pytest.mark.parametrize(("batch", "named"), [(1.0, False), (0.98, False), (0.5, True), (2.0, True)])
def test_another_batch_than_promised_is_named(root: Path, batch: float, named: bool) -> None:
    """At equal steps it has other tokens, and its losses are not those of the forecast's schedule."""
    write_files(root, curves={"path": "curves.csv", "train_steps": 2000})
    write_curves(root)
    made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    rows = (f"{RUN},{step},{LOSS * shape(step / 2000)},{batch * TOKENS * step / 2000}" for step in range(50, 1001, 50))
    (root / "steps.csv").write_text("\n".join([f"run,_step,{KEY},throughput/total_tokens", *rows]) + "\n")
    found = follow(made.folder.absolute(), root / "steps.csv")
    assert found.tokens_share == pytest.approx(batch)
    assert (f"{batch:.0%}" in found.verdict) is named


def test_json_lines_and_levanter_s_log_are_followed_too(root: Path) -> None:
    """The same values in another form give the same forecast."""
    folder = register_with_curves(root, outcome={"tracker": "json", "project": "lab/hero", "run": RUN, "key": KEY})
    lines = (write_curve_log(root, done=0.4)).read_text().splitlines()
    names = lines[0].split(",")
    rows = [dict(zip(names, [RUN, *map(float, line.split(",")[1:])], strict=True)) for line in lines[1:]]
    (root / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(follow(folder, root / "log.jsonl").marks) == 8


def test_a_run_of_wandb_is_followed_by_its_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B itself wrote them."""
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")  # W&B keeps the settings of the first start in a process
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = register_with_curves(root, outcome={"tracker": "wandb", "project": "hero", "run": "w1", "key": KEY})
    (root / "own").mkdir()
    run = wandb.init(project="hero", id="w1", dir=root / "own", mode="offline")
    for step in range(100, 1001, 100):
        run.log({KEY: LOSS * shape(step / 2000), "throughput/total_tokens": TOKENS * step / 2000}, step=step)
    run.finish()
    wandb.teardown()  # its service has written the file when it has ended
    found = follow(folder, root / "own")
    assert (len(found.marks), found.verdict) == (10, "on forecast")


def test_the_outcome_keeps_the_curve_and_the_page_draws_it(root: Path, folder: Path) -> None:
    """All twenty marks, in the signed reading and on the page."""
    record_outcome(
        folder, str(write_curve_log(root)), registry=folder.parent, key=root / "key", signer=PRINCIPAL, on_message=quiet
    )
    observed = json.loads((folder / "observed" / "observed.json").read_bytes())
    assert [each is not None for each in observed["curve"]] == [True] * 20
    page = forecast_page(root, folder)
    assert any(name.endswith("curve.svg") for name in page.files)
    assert any(b"20 of 20 marks" in content for name, content in page.files.items() if name.endswith(".md"))


def test_an_outcome_without_a_curve_says_so(root: Path, folder: Path) -> None:
    """A log with losses but no progress: the outcome stands, its curve was not checked."""
    log = root / "result.csv"
    log.write_text(f"run,{KEY},throughput/total_tokens\n{RUN},{LOSS},{TOKENS}\n")
    verdict = record_outcome(folder, str(log), registry=folder.parent, key=root / "key", signer=PRINCIPAL, on_message=quiet)
    assert "curve" in verdict.sentence


def test_without_a_forecast_of_the_curve_the_log_is_compared_with_the_end(root: Path) -> None:
    """Nothing was promised about its course, so nothing is predicted; a finished run has its outcome to be recorded."""
    folder = register_outside(root)
    found = follow(folder, write_curve_log(root, done=0.6))
    assert (round(found.fraction, 3), found.marks, found.has_ended) == (0.6, {}, False)
    assert "no prediction" in found.verdict
    assert f"{found.end[0.5]:.4f}" in followed_text(found)
    assert followed_document(found)["expected"] is None
    assert follow(folder, write_log(root)).has_ended
    head, first, *_ = write_log(root).read_text().splitlines()
    (root / "one.csv").write_text(f"{head}\n{first}\n")
    assert follow(folder, root / "one.csv").fraction == pytest.approx(0.5)


@pytest.mark.parametrize("kind", ["megatron", "maxtext", "json"])
def test_each_format_that_outcome_reads_is_followed(root: Path, kind: str) -> None:
    """Text of two trainers, and a folder with a file for each step."""
    key = {"megatron": "lm loss", "maxtext": "loss", "json": KEY}[kind]
    folder = register_outside(root, outcome={"tracker": kind, "project": "lab/hero", "run": RUN, "key": key})
    if kind == "json":
        (root / "log").mkdir()
        for step in (100, 200):
            row = {"run": RUN, KEY: LOSS + 0.5, "total_tokens": TOKENS * step / 400}
            (root / "log" / f"step-{step}.json").write_text(json.dumps(row))
    else:
        write_lines(root / "log", *{"megatron": megatron_log, "maxtext": maxtext_log}[kind](run=RUN, until=500))
    assert follow(folder, root / "log").fraction == pytest.approx(0.5, abs=0.01)


def test_the_log_of_another_run_is_refused(root: Path, folder: Path) -> None:
    """As for the outcome."""
    with pytest.raises(VerificationError, match="hero-2"):
        follow(folder, write_curve_log(root, run="hero-2"))


def test_a_log_of_another_tracker_is_refused(root: Path) -> None:
    """A CSV file is no W&B run."""
    folder = register_with_curves(root, outcome={"tracker": "json", "project": "lab/hero", "run": RUN, "key": KEY})
    with pytest.raises(VerificationError, match="json"):
        follow(folder, write_curve_log(root))


def test_a_log_of_another_project_or_an_earlier_start_is_refused(root: Path) -> None:
    """As for the outcome."""
    settings = ("  wandb_exp_name .......... " + RUN, "  wandb_project .......... other", "-- end of arguments --", "")
    text = "\n".join(settings)
    folder = register_with_curves(root, outcome=megatron_outcome())
    (root / "train.log").write_text(text + megatron(0.5))
    with pytest.raises(VerificationError, match="other"):
        follow(folder, root / "train.log")
    early = megatron(0.5).replace(" iteration ", " [2020-01-01 00:00:00] iteration ")
    (root / "train.log").write_text(early)
    with pytest.raises(VerificationError, match="2020"):
        follow(folder, root / "train.log")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("run,step,loss\nsomeone,1,2\n", "curves.csv"),
        ("run,step\nsimulated-0,1\n", "loss"),
        ("run,step,loss\nsimulated-0,1,high\n", "line 2"),
        ("run,step,loss\nsimulated-0,1,-2\n", "line 2"),
        ("name,when,loss\nsimulated-0,1,2\n", "step"),
    ],
)
def test_a_bad_table_of_curves_is_refused_before_anything_is_signed(root: Path, content: str, named: str) -> None:
    """With the file and what is wrong."""
    write_files(root, curves={"path": "curves.csv"})
    (root / "curves.csv").write_text(content)
    with pytest.raises(RunTableError, match=named):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    assert not (root / "preregistrations").exists()


@pytest.mark.parametrize("path", ["/elsewhere/curves.csv", "../curves.csv", "curves.parquet", "a b.csv"])
def test_a_table_of_curves_that_others_cannot_find_or_read_is_refused(root: Path, path: str) -> None:
    """As for the table of runs."""
    write_files(root, curves={"path": path})
    with pytest.raises(LadderFileError):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)


def test_columns_of_other_names_are_stated_in_the_target_file(root: Path) -> None:
    """Progress may be the share of the run or its tokens."""
    write_files(root, curves={"path": "curves.csv", "columns": {"run": "rung", "fraction": "x", "loss": "y"}})
    lines = write_curves(root).read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    (root / "curves.csv").write_text("rung,x,y\n" + "".join(f"{run},{int(step) / 40},{loss}\n" for run, step, loss in rows))
    made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    assert len(signed_curve(made.folder)) == 20


@pytest.mark.parametrize(("name", "scale"), [("tokens_B", 1e-9), ("total_tokens", 1e-6)])
def test_progress_in_a_unit_of_tokens_gives_the_same_curve(root: Path, name: str, scale: float) -> None:
    """In the table of curves, in the log of a run in training where the key names the unit, and in the outcome."""
    outcome = target()["outcome"] | {"tokens_key": name}
    write_files(root, curves={"path": "curves.csv", "columns": {"tokens": name}}, outcome=outcome)
    runs = pd.read_csv(write_curves(root)).merge(pd.read_csv("runs.csv")[["run", "tokens"]], on="run")
    runs[name] = runs.pop("tokens") * runs.pop("step") / 40 * scale
    runs.to_csv("curves.csv", index=False)
    made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    assert all(None not in each["losses"] for each in json.loads((made.folder / "ladder.json").read_bytes())["curves"]["runs"])
    for done in (0.5, 1.0)[name == "total_tokens" :]:
        log = pd.read_csv(write_curve_log(root, done=done)).rename(columns={"throughput/total_tokens": name})
        log.assign(**{name: log[name] * scale}).to_csv("log.csv", index=False)
        assert follow(made.folder, "log.csv").fraction == pytest.approx(done)
    record_outcome(made.folder, "log.csv", key="key", signer=PRINCIPAL, on_message=quiet)
    assert None not in json.loads((made.folder / "observed" / "observed.json").read_bytes())["curve"]


def test_the_command_prints_band_marks_and_verdict(root: Path, folder: Path) -> None:
    """The numbers of `track_outside`, in at most 80 columns; --json has them all."""
    log = write_curve_log(root, done=0.6)
    found = follow(folder, log)
    with contextlib.chdir(root):
        printed = CliRunner().invoke(app, ["track", folder.name, "--log", str(log)], catch_exceptions=False).output
        document = json.loads(CliRunner().invoke(app, ["track", folder.name, "--log", str(log), "--json"]).output)
    assert f"{found.now.end[0.5]:.4f}" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert document["verdict"] == found.verdict
    assert [row["inside_90"] for row in document["curve"]] == [True] * 12 + [None] * 8


def test_the_stability_in_the_log_is_shown_and_changes_no_mark(root: Path, folder: Path) -> None:
    """Norms, entropy, overflow and loads by the names of Marin's trainer; a log without them has no such section."""
    log = write_curve_log(root, done=0.6)
    plain = follow(folder, log)
    names = ["grad/norm/total", "train/router/layer_0/routing_entropy", "train/router/capacity_overflow_rate_mean"]
    names += [f"train/router/layer_0/routing_count/expert_{expert}" for expert in range(4)]
    head, *rows = log.read_text().splitlines()
    log.write_text("\n".join([",".join([head, *names]), *(f"{row},0.5,1.2,0.03,10,30,40,20" for row in rows)]) + "\n")
    found = follow(folder, log)
    assert (found.marks, found.now.end, found.verdict) == (plain.marks, plain.now.end, plain.verdict)
    with contextlib.chdir(root):
        printed = CliRunner().invoke(app, ["track", folder.name, "--log", str(log)], catch_exceptions=False).output
        document = json.loads(CliRunner().invoke(app, ["track", folder.name, "--log", str(log), "--json"]).output)
    assert max(map(len, printed.splitlines())) <= 80
    stability = document["stability"]
    assert (stability["gradient_norm"], stability["dropped_share"], stability["experts"]) == (0.5, 0.03, 4)
    assert stability["most_load"] == {"even_shares": 1.6, "layer": 0, "expert": 2}
    assert len(stability["findings"]) == printed.count("warning: ") == 1
    assert plain.stability.is_empty


def megatron(done: float) -> str:
    """The output of Megatron-LM with an evaluation every 50 of 2,000 iterations, up to a share of the run."""
    lines = []
    for step in range(10, round(2000 * done) + 1, 10):
        lines.append(
            f" iteration {step:8d}/    2000 | consumed samples: {step * 256:12d} | elapsed time per iteration (ms): 512.3 | "
            f"learning rate: 3.000E-04 | lm loss: {LOSS * shape(step / 2000):.6E} | number of nan iterations:   0 |"
        )
        if step % 50 == 0:
            loss = f"{LOSS * shape(step / 2000):.6E}"
            lines.append(f" validation loss at iteration {step} | lm loss value: {loss} | lm loss PPL: 1.0E+01 | ")
    return "\n".join(lines) + "\n"


def maxtext(done: float) -> str:
    """The output of MaxText, likewise; its first step is 0."""
    lines = ["Config param run_name: hero-1", "Config param steps: 2000"]
    for step in range(0, round(2000 * done), 10):
        loss = LOSS * shape((step + 1) / 2000)
        lines.append(f"completed step: {step}, seconds: 1.2, TFLOP/s/device: 123.4, total_weights: 65536, loss: {loss:.4f}")
        if step % 50 == 0 and step:
            lines.append(f"eval metrics after step: {step}, loss={loss:.4f}, total_weights=65536")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("tracker", "key", "text", "marks"),
    [
        ("megatron", "validation lm loss", megatron, 12),
        ("megatron", "lm loss", megatron, 12),
        ("maxtext", "eval_loss", maxtext, 11),
        ("maxtext", "loss", maxtext, 12),
    ],
)
def test_the_text_of_a_trainer_is_followed(root: Path, tracker: str, key: str, text, marks: int) -> None:
    """By its planned steps. MaxText's last evaluation so far is a step before its mark at 60 %."""
    folder = register_with_curves(root, outcome={"tracker": tracker, "project": "lab/hero", "run": RUN, "key": key})
    (root / "train.log").write_text(text(0.6))
    found = follow(folder, root / "train.log")
    assert len(found.marks) == marks
    assert all(inside for _, inside in found.marks.values())
    assert found.verdict == "on forecast"


def test_a_run_restarted_under_another_id_is_followed_across_both_logs(root: Path, folder: Path) -> None:
    """The restart is declared from the middle of the run; what the first log has from after it does not count."""
    restart(folder, from_step=1001)
    lines = write_curve_log(root, done=0.75).read_text().splitlines()
    head, before, after = lines[0], lines[1:21], [line.replace(RUN, "hero-1b") for line in lines[21:]]
    (root / "a.csv").write_text("\n".join([head, *before, f"{RUN},1050,9.9,{TOKENS * 0.525}"]) + "\n")
    (root / "b.csv").write_text("\n".join([head, *after]) + "\n")
    found = follow(folder, root / "a.csv", root / "b.csv")
    assert (found.fraction, len(found.marks)) == (0.75, 15)
    assert all(inside for _, inside in found.marks.values())


def write_unfinished(root: Path, **curves: object) -> tuple[str, float]:
    """Files in which the last run stopped at 80 %; its name and its true final loss."""
    write_files(root, curves={"path": "curves.csv", **curves})
    path = write_curves(root)
    runs = pd.read_csv(root / "runs.csv")
    name, loss = runs["run"].iloc[-1], float(runs["loss"].iloc[-1])
    steps = pd.read_csv(path)
    steps["fraction"] = steps.pop("step") / 40
    steps[(steps["run"] != name) | (steps["fraction"] <= 0.8)].to_csv(path, index=False)
    runs.loc[runs.index[-1], "loss"] = None
    runs.to_csv(root / "runs.csv", index=False)
    return name, loss


def test_the_loss_of_a_run_that_stopped_is_estimated_from_its_curve(root: Path) -> None:
    """To 0.3 %; a warning names it, and verify estimates it again."""
    write_unfinished(root)
    name = pd.read_csv(root / "runs.csv")["run"].iloc[-1]
    name, loss = write_unfinished(root, complete=[str(name)])
    said = list[str]()
    made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=said.append)
    folder = made.folder.absolute()
    row = next(each for each in json.loads((folder / "ladder.json").read_bytes())["rows"] if each["run"] == name)
    assert abs(row["loss"] / loss - 1) < 0.003
    assert any(name in each and "estimated" in each for each in said)
    found = verify_and_fit(folder, allowed_signers=folder.parent / "allowed_signers", runs_dir=root / "runs")
    assert all(step.compared for step in found.steps if step.what in ("ladder", "fit"))


@pytest.mark.parametrize("named", ["nobody", "simulated-0"])
def test_only_a_run_without_a_loss_is_completed(root: Path, named: str) -> None:
    """Neither an unknown one, nor one that has its loss."""
    write_unfinished(root, complete=[named])
    with pytest.raises(RunTableError, match=named):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)


def test_a_loss_that_is_no_number_predicts_nothing(root: Path, folder: Path) -> None:
    """From its step on; the marks before it stand."""
    log = write_curve_log(root, done=0.6)
    log.write_text(log.read_text() + "".join(f"{RUN},{step},nan,{TOKENS * step / 2000}\n" for step in (1250, 1300)))
    found = follow(folder, log)
    assert (found.broken_at, len(found.marks)) == (0.6, 12)
    assert "no prediction" in found.verdict


def test_a_run_that_diverges_with_finite_losses_predicts_nothing(root: Path, folder: Path) -> None:
    """Its loss has risen."""
    log = write_curve_log(root, done=0.5)
    log.write_text(
        log.read_text() + "".join(f"{RUN},{step},{4 + step / 500},{TOKENS * step / 2000}\n" for step in (1050, 1100))
    )
    assert "risen" in follow(folder, log).verdict


def test_a_run_of_another_shape_predicts_nothing(root: Path, folder: Path) -> None:
    """A loss that falls far less than those of the smaller runs."""
    log = root / "curve.csv"
    rows = [f"{RUN},{step},{LOSS * (1.1 + 0.01 * shape(step / 2000))},{TOKENS * step / 2000}" for step in range(100, 1201, 50)]
    log.write_text("\n".join([f"run,_step,{KEY},throughput/total_tokens", *rows]) + "\n")
    assert "unlike" in follow(folder, log).verdict


def test_other_planned_steps_than_those_of_the_log_are_refused(root: Path) -> None:
    """A digit was left out of the target file."""
    write_files(root, curves={"path": "curves.csv", "train_steps": 200}, outcome=megatron_outcome())
    write_curves(root)
    made = preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    (root / "train.log").write_text(megatron(0.6))
    with pytest.raises(RunTableError, match="2000"):
        follow(made.folder.absolute(), root / "train.log")
    with pytest.raises(SigningError, match="200 steps"):
        restart(made.folder.absolute(), from_step=2500)


def megatron_outcome() -> dict[str, str]:
    """Where the outcome is read."""
    return {"tracker": "megatron", "project": "lab/hero", "run": RUN, "key": "lm loss"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda rows: rows.assign(loss=rows["loss"] + 0.5), "curves.key"),
        (lambda rows: rows.assign(fraction=rows.pop("step") * 2.5), "at most 1"),
        (lambda rows: pd.concat([rows, rows.head(1).assign(loss=3.9)]), "earlier row"),
    ],
)
def test_curves_that_cannot_be_those_of_the_table_are_refused(root: Path, change, named: str) -> None:
    """Of another loss without its key, with shares in per cent, or with two losses at one step."""
    write_files(root, curves={"path": "curves.csv"})
    change(pd.read_csv(write_curves(root))).to_csv(root / "curves.csv", index=False)
    with pytest.raises(MarinScalingError) as refusal:
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    assert named in str(refusal.value)


def test_a_run_is_not_completed_from_less_than_half_of_its_curve(root: Path) -> None:
    """Its estimate would carry too much."""
    name, _ = write_unfinished(root)
    name, _ = write_unfinished(root, complete=[str(name)])
    steps = pd.read_csv(root / "curves.csv")
    steps[(steps["run"] != name) | (steps["fraction"] <= 0.4)].to_csv(root / "curves.csv", index=False)
    with pytest.raises(RunTableError, match="half"):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)


def test_a_run_that_diverged_with_a_finite_loss_is_a_miss(root: Path, folder: Path) -> None:
    """It was stopped early, far above its forecast."""
    log = write_curve_log(root, done=0.5)
    log.write_text(log.read_text() + f"{RUN},1050,7.1,{TOKENS * 0.525}\n")
    verdict = record_outcome(
        folder, str(log), registry=folder.parent, key=root / "key", signer=PRINCIPAL, diverged=True, on_message=quiet
    )
    assert (verdict.state, verdict.outcome["value"]) == ("missed", None)


def test_no_line_of_output_is_wider_than_80_columns(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for commands, which are copied, and words without a blank; a document is not wrapped."""
    monkeypatch.setenv("COLUMNS", "80")
    log, signing = str(write_curve_log(root, done=0.6)), ["--key", "key", "--as", PRINCIPAL]
    write_files(root, name="second", outcome={"tracker": "csv", "project": "lab/hero", "run": "hero-2", "key": KEY})
    commands = [
        ["preregister", "--table", "runs.csv", "--target", "hero.yaml", *signing],
        ["track", folder.name, "--log", log],
        ["registry", "deviate", folder.name, "--from-step", "9", "--reason", "a new mix", *signing],
        ["outcome", folder.name, "--log", str(write_log(root)), *signing],
        ["check", folder.name],
        ["registry", "log"],
    ]
    for command in commands:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, str(done.exception)
        wide = [line.strip() for line in done.output.splitlines() if len(line) > 80]
        assert not [line for line in wide if " " in line and not line.startswith(("git ", "marin-scale "))]
    assert json.loads(CliRunner().invoke(app, ["track", folder.name, "--log", log, "--json"]).stdout)["run"] == RUN


@pytest.mark.parametrize("option", [["--steps", "100"], ["--against", "x"], ["--column", "loss=x"]])
def test_options_of_other_runs_are_refused_beside_a_log(root: Path, folder: Path, option: list[str]) -> None:
    """They would have no effect."""
    done = CliRunner().invoke(app, ["track", folder.name, "--log", str(write_curve_log(root, done=0.5)), *option])
    assert isinstance(done.exception, UsageError)


def test_a_gap_before_a_restart_is_refused_while_the_run_trains(root: Path, folder: Path) -> None:
    """Values that an earlier log has from after the declared step do not stand in for it."""
    restart(folder, from_step=500)
    head, *lines = write_curve_log(root, done=0.75).read_text().splitlines()
    (root / "a.csv").write_text("\n".join([head, *lines[:20]]) + "\n")
    (root / "b.csv").write_text("\n".join([head, *(line.replace(RUN, "hero-1b") for line in lines[20:])]) + "\n")
    with pytest.raises(VerificationError, match="gap"):
        follow(folder, root / "a.csv", root / "b.csv")


@pytest.mark.parametrize("logs", [(), (["log.csv"],), (3,)])
def test_logs_are_paths_and_at_least_one(root: Path, folder: Path, logs: tuple) -> None:
    """In Python both functions take each log by itself."""
    with pytest.raises(UsageError):
        follow(folder, *logs)
    with pytest.raises(UsageError):
        record_outcome(folder, *logs, registry=folder.parent, key=root / "key", signer=PRINCIPAL, on_message=quiet)


def test_a_registration_is_followed_and_a_finished_run_says_so(root: Path, folder: Path) -> None:
    """By the object that `preregister_table` returns, too."""
    found = track_outside(folder, write_curve_log(root), registry=str(folder.parent))
    assert found.has_ended
    assert "ended" in followed_text(found)


def test_curves_without_a_run_and_runs_without_a_curve_are_named(root: Path) -> None:
    """A renamed run is no silent loss."""
    write_files(root, curves={"path": "curves.csv"})
    path = write_curves(root)
    path.write_text(path.read_text().replace("simulated-3,", "renamed,"))
    said = list[str]()
    preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=said.append)
    assert any("simulated-3" in each and "warning" in each for each in said)
    assert any("renamed" in each and "warning" in each for each in said)


COSINE = {"shape": "cosine", "floor": 0.1}
STABLE = {"decay": 0.2}


def converted(root: Path, **curves: object) -> Path:
    """The folder of a forecast whose runs had a cosine, and whose target has a decay over the last fifth."""
    write_files(root, curves={"path": "curves.csv", "runs_schedule": COSINE, "schedule": STABLE, **curves})
    write_curves(root)
    return root / preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet).folder


def test_another_schedule_than_that_of_the_runs_changes_and_widens_the_forecast(root: Path) -> None:
    """The curve stays above that of the runs before its decay, and `verify` repeats the conversion."""
    made = converted(root)
    (root / "same").mkdir()
    rows, others = signed_curve(made), signed_curve(register_with_curves(root / "same"))
    assert rows[0.75]["0.5"] > 1.015 * others[0.75]["0.5"]
    assert all(each["0.95"] / each["0.05"] > others[at]["0.95"] / others[at]["0.05"] for at, each in rows.items())
    steps = verify_and_fit(made, allowed_signers=made.parent / "allowed_signers").steps
    assert all(step.compared for step in steps if step.what in ("ladder", "fit"))


@pytest.mark.parametrize(
    ("curves", "changes", "error"),
    [
        ({"schedule": STABLE}, {}, LadderFileError),
        ({"schedule": {"warmup": 0.6, "decay": 0.5}, "runs_schedule": COSINE}, {}, LadderFileError),
        ({"schedule": STABLE, "runs_schedule": COSINE}, {"metric": "bits_per_byte"}, UsageError),
    ],
    ids=["one schedule", "more than the run", "bits per byte"],
)
def test_schedules_that_cannot_be_converted_are_refused(
    root: Path, curves: dict[str, object], changes: dict[str, object], error: type[Exception]
) -> None:
    """Nothing is signed."""
    write_files(root, curves={"path": "curves.csv", **curves}, **changes)
    write_curves(root)
    with pytest.raises(error):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=quiet)
    assert not list(root.glob("preregistrations/*-hero"))
