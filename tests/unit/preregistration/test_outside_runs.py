"""Outside runs: a forecast signed from a table, and an outcome read from the log of the run that was named in advance."""

import contextlib
import json
import math
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from one_page import page
from outside_factory import (
    KEY,
    LOSS,
    PRINCIPAL,
    RUN,
    TOKENS,
    copy_of_registered,
    day,
    register_outside,
    target,
    write_files,
    write_key,
    write_log,
)
from text_log_factory import maxtext_log, megatron_log
from text_log_factory import write as write_lines
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import (
    LadderFileError,
    MarinScalingError,
    SigningError,
    StatementError,
    UsageError,
    VerificationError,
)
from marin_scaling.preregistration import verification
from marin_scaling.preregistration.format import ASSURANCE
from marin_scaling.preregistration.outcome import State
from marin_scaling.preregistration.outside import (
    TargetFile,
    forecast_outside,
    preregister_table,
    read_target_file,
    record_outcome,
)
from marin_scaling.preregistration.preregister import sign_notice
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import read_registration
from marin_scaling.preregistration.tracked_run import track_outside
from marin_scaling.preregistration.verdict import check
from marin_scaling.preregistration.verification import verify, verify_registry
from marin_scaling.scoring import score


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a signed forecast, as the current folder."""
    copy_of_registered(tmp_path, factory=tmp_path_factory)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(root: Path) -> Path:
    """The folder of the forecast."""
    return next((root / "preregistrations").glob("*-hero"))


def made(place: Path) -> str:
    place.mkdir(parents=True)
    return str(place)


def record(folder: Path, log: Path | str, **choices):
    return record_outcome(folder, str(log), key="key", signer=PRINCIPAL, on_message=lambda _: None, **choices)


def register(**choices):
    return preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None, **choices)


def test_the_forecast_is_that_of_the_stated_size(folder: Path) -> None:
    """Not of the compute-optimal run of its FLOPs; the law's own value is in the 90 % interval."""
    statement = read_registration(folder)
    assert statement.predicate["targetRun"]["paramsTotal"] == 10**9
    assert statement.quantiles[0.05] < LOSS < statement.quantiles[0.95]


def test_everything_verifies_and_the_refit_gives_the_quantiles(folder: Path) -> None:
    """Signature, files, table, fit; the assurance of the run is stated and not compared."""
    steps = {step.what: step for step in verify(folder).steps}
    assert all(steps[what].compared for what in ("signature", "subjects", "forecast", "fit", "ladder"))
    assert not steps["run"].compared
    assert "tracked" in steps["run"].evidence


def test_the_choices_of_reading_are_signed_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with other names and a second group verifies from the file itself."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    runs = pd.read_csv("runs.csv").rename(columns={"loss": "eval/x"}).assign(mix="web")
    pd.concat([runs, runs.assign(mix="code", **{"eval/x": runs["eval/x"] * 0.8})]).to_csv("runs.csv", index=False)
    made = register(columns={"loss": "eval/x"}, where={"mix": "web"})
    source = json.loads((made.folder / "ladder.json").read_bytes())["source"]
    assert source["choices"] == {"columns": {"loss": "eval/x"}, "where": {"mix": "web"}}
    assert next(step for step in verify(made).steps if step.what == "ladder").compared


def test_the_chosen_law_is_signed_and_fitted_again(root: Path) -> None:
    """Its name is in the statement, and the refit gives the quantiles."""
    write_files(root, name="second", outcome={**target()["outcome"], "run": "hero-2"})
    said = ["preregister", "--table", "runs.csv", "--target", "hero.yaml", "--law", "coupled-surface", "--key", "key"]
    done = CliRunner().invoke(app, [*said, "--as", PRINCIPAL])
    assert done.exit_code == 0, str(done.exception)
    folder = next((root / "preregistrations").glob("*-second"))
    assert read_registration(folder).predicate["fit"]["law"].partition(":")[0] == "coupled-surface"
    assert next(step for step in verify(folder).steps if step.what == "fit").compared


@pytest.mark.parametrize("law", ["laws.py:mine", "no-such-law"])
def test_a_law_that_others_cannot_fit_again_is_refused(root: Path, law: str) -> None:
    """A Python file's, whose code is not signed, and an unknown one."""
    with pytest.raises(UsageError, match="coupled-surface"):
        register(law=law)


def test_without_the_table_the_ladder_is_not_compared(folder: Path) -> None:
    """The statement's own rows are still fitted again."""
    Path("runs.csv").unlink()
    steps = {step.what: step for step in verify(folder).steps}
    assert not steps["ladder"].compared
    assert steps["fit"].compared


def test_the_outcome_is_the_last_value_of_the_named_key(folder: Path, root: Path) -> None:
    """With the scores of the signed quantiles against it."""
    assert check(folder).state is State.PENDING
    verdict = record(folder, write_log(root))
    assert verdict.state is State.HELD
    assert verdict.outcome["value"] == pytest.approx(LOSS)
    expected = score(read_registration(folder).quantiles, observed=verdict.outcome["value"], asymptote=None)
    assert verdict.outcome["scores"]["crps"] == pytest.approx(expected.crps)
    assert check(folder).state is State.HELD
    assert {step.what for step in verify(folder).steps} >= {"observed", "log"}


def test_the_document_of_a_verdict_always_has_its_comparison_and_status(folder: Path, root: Path) -> None:
    """Null with the reason before the outcome; then the observed loss beside the forecast."""
    before = json.loads(CliRunner().invoke(app, ["check", folder.name, "--json"]).stdout)[0]
    assert (before["comparison"], before["status"].partition(":")[0]) == (None, "not compared")
    record(folder, write_log(root))
    after = json.loads(CliRunner().invoke(app, ["check", folder.name, "--json"]).stdout)[0]
    assert after["comparison"]["observed"] == pytest.approx(LOSS)
    assert after["comparison"]["forecast"] == pytest.approx(read_registration(folder).quantiles[0.5])
    assert after["status"] == "compared"
    assert after.keys() == before.keys()


def test_an_outcome_is_read_once(folder: Path, root: Path) -> None:
    """A second log is refused before it is read."""
    first = record(folder, write_log(root)).outcome
    with pytest.raises(UsageError, match="no log was read"):
        record(folder, write_log(root, loss=LOSS * 1.5))
    assert check(folder).outcome == first


def test_a_reading_that_was_interrupted_is_finished(folder: Path, root: Path) -> None:
    """With the reading signed and the outcome not yet written, the next command writes that outcome."""
    first = record(folder, write_log(root)).outcome["value"]
    (folder / "outcome.json").unlink()
    log = folder.parent / "log.jsonl"
    log.write_bytes(log.read_bytes().splitlines(keepends=True)[0])
    assert record(folder, "gone.csv").outcome["value"] == first


def test_a_run_that_diverged_is_a_miss(folder: Path, root: Path) -> None:
    """Its last loss is no number."""
    folder = register_outside(root, outcome={**target()["outcome"], "tracker": "levanter", "run": f"{RUN}-2"}, name="second")
    events = [
        {"event": "hparams", "hparams": {"trainer/id": f"{RUN}-2"}},
        {"event": "log", "step": 100, "metrics": {KEY: 4.0}},
        {"event": "log", "step": 200, "metrics": {KEY: float("nan")}},
        {"event": "finish", "summary": {}},
    ]
    log = root / "tracker.jsonl"
    log.write_text("".join(json.dumps({"tracker": "json_logger", **event}) + "\n" for event in events))
    verdict = record(folder, log)
    assert verdict.state is State.MISSED
    assert verdict.outcome["status"] == "diverged"


def test_a_log_without_tokens_is_taken_and_said(folder: Path, root: Path) -> None:
    """The step of the reading is then not compared."""
    record(folder, write_log(root, tokens=None))
    step = next(step for step in verify(folder).steps if step.what == "observed")
    assert not step.compared
    assert "tokens" in step.evidence


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"run": "another"}, "another"),
        ({"key": "eval/other_loss"}, "eval/paloma/macro_loss"),
        ({"tokens": TOKENS / 2}, "10.0B"),
        ({"loss": 51.0}, "51"),
        ({"loss": "broken"}, "broken"),
        ({"loss": ""}, "step 100"),
    ],
)
def test_the_log_of_another_run_is_refused(folder: Path, root: Path, changes: dict, named: str) -> None:
    """Another run, key, number of tokens or kind of value, or none at the end; nothing is written."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(MarinScalingError) as refusal:
        record(folder, write_log(root, **changes))
    assert named in str(refusal.value)
    assert sorted(folder.rglob("*")) == before


def test_a_run_of_wandb_is_read_with_its_id_start_and_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by W&B itself, into a folder with links and logs of its own; only the state of an offline file is in doubt."""
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")  # W&B keeps the settings of the first start in a process
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = register_outside(root, name="tracked", outcome={"tracker": "wandb", "project": "hero", "run": "w1", "key": KEY})
    before = wandb.init(project="other", id="w1", name="a name", dir=made(root / "before"), mode="offline")
    before.log({KEY: LOSS, "throughput/total_tokens": TOKENS}, step=9)
    before.finish()
    with pytest.raises(VerificationError, match="other"):
        record(folder, root / "before")
    run = wandb.init(project="hero", id="w1", name="a name", dir=made(root / "own"), mode="offline")
    run.log({KEY: 4.0, "throughput/total_tokens": TOKENS / 2}, step=5)
    run.log({KEY: LOSS, "throughput/total_tokens": TOKENS}, step=9)
    run.finish()
    wandb.teardown()  # its service has written the file when it has ended
    assert record(folder, root / "own").outcome["value"] == pytest.approx(LOSS)
    assert next(step for step in verify(folder).steps if step.what == "observed").compared


def test_a_run_that_was_resumed_under_its_id_is_one_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B writes a folder for each start; the first one ended in a crash."""
    wandb = pytest.importorskip("wandb", reason="the wandb extra is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")  # W&B keeps the settings of the first start in a process
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = register_outside(root, name="tracked", outcome={"tracker": "wandb", "project": "hero", "run": "w1", "key": KEY})
    for place, steps, code in (("first", (5,), 1), ("again", (6, 9), 0)):
        run = wandb.init(project="hero", id="w1", dir=made(root / "own" / place), mode="offline")
        for step in steps:
            run.log({KEY: LOSS * 9 / step, "throughput/total_tokens": TOKENS * step / 9}, step=step)
        run.finish(exit_code=code)
        time.sleep(1.1)  # W&B keeps whole seconds
    with pytest.raises(VerificationError, match="failed"):
        record(folder, root / "own" / "first")
    verdict = record(folder, root / "own")
    assert verdict.outcome["value"] == pytest.approx(LOSS)
    assert len(json.loads((folder / "observed" / "observed.json").read_bytes())["files"]) == 2


def history(*rows: dict) -> str:
    """A history in JSON lines."""
    Path("metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "metrics.jsonl"


@pytest.fixture
def in_json(root: Path) -> Path:
    """A second forecast, whose log will be JSON lines."""
    return register_outside(root, name="json", outcome={**target()["outcome"], "tracker": "json", "run": "hero-2"})


def row(step: int, loss: float | None, **more: object) -> dict:
    """A step of the second run; 10 are all."""
    return {"run": "hero-2", "step": step, **({} if loss is None else {KEY: loss}), "tokens": TOKENS * step / 10, **more}


def test_a_history_in_which_a_restart_goes_back_is_one_run(in_json: Path) -> None:
    """The values of the restart count; steps are not in order in the file."""
    log = history(row(5, 4.0), row(7, 9.9), row(6, 3.0), row(7, 2.9), row(10, LOSS))
    assert record(in_json, log).outcome["value"] == pytest.approx(LOSS)


@pytest.mark.parametrize(("scale", "unit"), [(1e-6, "millions"), (1e-9, "billions")])
def test_tokens_in_a_unit_are_converted_and_the_unit_is_stated(in_json: Path, scale: float, unit: str) -> None:
    """By the agreement with the promise alone: the key names no unit; of half the run, or of another unit, they are refused."""
    for wrong in (0.5, 0.98, 10.0):
        with pytest.raises(VerificationError, match="tokens"):
            record(in_json, history(row(5, 4.0, tokens=1e-12), row(10, LOSS, tokens=TOKENS * scale * wrong)))
    verdict = record(in_json, history(row(5, 4.0, tokens=TOKENS / 2 * scale), row(10, LOSS, tokens=TOKENS * scale * 1.005)))
    observed = json.loads((in_json / "observed" / "observed.json").read_bytes())
    assert observed["tokens"] == pytest.approx(TOKENS * 1.005)
    assert observed["tokens_unit"] == unit
    step = next(step for step in verify(in_json).steps if step.what == "observed")
    assert f"in {unit}" in step.evidence
    assert f"in {unit}" in verdict.sentence
    assert check(in_json).sentence == verdict.sentence


def test_a_thousandth_of_the_tokens_is_no_unit_that_nobody_names(in_json: Path) -> None:
    """A run can have stopped there."""
    with pytest.raises(VerificationError, match="tokens"):
        record(in_json, history(row(5, 4.0, tokens=1.0), row(10, LOSS, tokens=TOKENS / 1000)))


def test_a_log_of_one_run_that_does_not_name_it_is_taken_and_said(in_json: Path) -> None:
    """Under any file name."""
    rows = [row(5, 4.0), row(10, LOSS)]
    record(in_json, history(*({key: value for key, value in each.items() if key != "run"} for each in rows)))
    step = next(step for step in verify(in_json).steps if step.what == "observed")
    assert "name of the run" in step.evidence


def test_a_history_gives_its_start_and_state(in_json: Path) -> None:
    """The first time that it has is not after the start, so an earlier one is refused; so is a run that crashed."""
    for more, named in (({"timestamp": 1.6e9}, "2020-09-13"), ({"status": "crashed"}, "crashed")):
        with pytest.raises(VerificationError, match=named):
            record(in_json, history(row(5, 4.0, **more), row(10, LOSS, **more)))
    now = datetime.now(UTC) + timedelta(minutes=1)
    record(
        in_json, history(row(5, 4.0, timestamp=now.isoformat()), row(10, LOSS, timestamp=now.isoformat(), status="finished"))
    )
    assert "start" not in next(step for step in verify(in_json).steps if step.what == "observed").evidence


def test_a_log_that_begins_before_the_planned_start_is_named_with_both_days(in_json: Path) -> None:
    """Once it began before that day in every time zone; in the sentence and in the document."""
    began = datetime.now(UTC) + timedelta(minutes=1)
    verdict = record(in_json, history(row(5, 4.0, timestamp=began.isoformat()), row(10, LOSS)))
    (warning,) = [each for each in verdict.to_document()["warnings"] if day(30) in each]
    assert f"{began:%Y-%m-%d}" in warning
    assert warning in verdict.sentence
    assert verdict.state is State.HELD
    assert check(in_json).sentence == verdict.sentence


def test_a_log_without_times_that_is_read_before_the_planned_start_is_named(folder: Path, root: Path) -> None:
    """A finished run began before its log was read; in the verdict, in `check` and on the page."""
    verdict = record(folder, write_log(root))
    (warning,) = [each for each in verdict.warnings if day(30) in each]
    assert day(0) in warning
    assert warning in check(folder).sentence
    assert day(30) in page(root, f"preregistrations/{folder.name}.md").partition("planned start")[2]


def test_a_run_that_begins_on_the_planned_day_is_not_warned_about(root: Path) -> None:
    """Also where that day has not begun in UTC."""
    folder = register_outside(
        root, name="soon", planned_start=day(0), outcome={**target()["outcome"], "tracker": "json", "run": "hero-2"}
    )
    began = datetime.now(UTC) + timedelta(minutes=1)
    verdict = record(folder, history(row(5, 4.0, timestamp=began.isoformat()), row(10, LOSS)))
    assert not [each for each in verdict.warnings if "planned start" in each]


def test_a_divergence_that_the_log_shows_by_silence_has_to_be_stated(in_json: Path) -> None:
    """And cannot be stated of a run that ends with a loss."""
    silent = history(row(5, 4.0), row(10, None))
    with pytest.raises(VerificationError, match="--diverged"):
        record(in_json, silent)
    with pytest.raises(VerificationError, match="did not diverge"):
        record(in_json, history(row(5, 4.0), row(10, LOSS)), diverged=True)
    assert record(in_json, history(row(5, 4.0), row(10, None)), diverged=True).state is State.MISSED


@pytest.mark.parametrize("end", [["nan"], ["NaN", "nan"], ["", ""], ["inf"]], ids=str)
def test_a_loss_that_is_no_number_in_the_last_rows_is_no_outcome(folder: Path, root: Path, end: list[str]) -> None:
    """However few these rows are; the run may be stated to have diverged."""
    values = [*np.linspace(4.0, LOSS, 198), *end]
    rows = [f"{RUN},{step},{value},{TOKENS * step / len(values)}" for step, value in enumerate(values, start=1)]
    log = root / "log.csv"
    log.write_text("\n".join([f"run,_step,{KEY},throughput/total_tokens", *rows]) + "\n")
    with pytest.raises(VerificationError, match="--diverged"):
        record(folder, log)
    assert record(folder, log, diverged=True).state is State.MISSED


def test_a_loss_that_is_logged_every_tenth_step_may_end_some_rows_before_the_last(folder: Path, root: Path) -> None:
    """Empty cells between its values say nothing."""
    rows = [f"{RUN},{step},{LOSS if step % 10 == 0 else ''},{TOKENS * step / 2005}" for step in range(1, 2006)]
    log = root / "log.csv"
    log.write_text("\n".join([f"run,_step,{KEY},throughput/total_tokens", *rows]) + "\n")
    assert record(folder, log).outcome["value"] == pytest.approx(LOSS)


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05])
def test_perplexities_are_refused_where_the_promise_is_in_nats(in_json: Path, factor: float) -> None:
    """Also of a missed forecast. Nothing is written, so the loss itself can be recorded."""
    with pytest.raises(VerificationError):
        record(in_json, history(row(5, 50.0), row(10, math.exp(factor * LOSS))))
    assert record(in_json, history(row(5, 4.0), row(10, LOSS))).state is State.HELD


def test_a_key_that_names_a_perplexity_is_refused_before_the_signature(root: Path) -> None:
    """The outcome would be read as a loss."""
    with pytest.raises(StatementError):
        register_outside(root, name="ppl", outcome={**target()["outcome"], "key": "eval/ppl"})
    assert not list((root / "preregistrations").glob("*-ppl"))


def test_a_log_from_the_future_is_refused(in_json: Path) -> None:
    """Its times are no proof that the run began after the forecast."""
    later = (datetime.now(UTC) + timedelta(days=20)).isoformat()
    with pytest.raises(VerificationError, match="after it was read"):
        record(in_json, history(row(5, 4.0, timestamp=later), row(10, LOSS, timestamp=later)))


def test_a_table_that_names_another_project_is_refused(in_json: Path) -> None:
    with pytest.raises(VerificationError, match="project other"):
        record(in_json, history(row(5, 4.0, project="other"), row(10, LOSS, project="other")))


def test_a_run_that_is_to_begin_after_its_due_day_is_refused(root: Path) -> None:
    """Also where the day is the usual one."""
    write_files(root, planned_start=(datetime.now(UTC) + timedelta(days=300)).date())
    with pytest.raises(StatementError, match=r"promise\.due"):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None)


def test_a_run_with_a_known_outcome_is_not_forecast_by_anyone(folder: Path, root: Path) -> None:
    """Neither by another person, nor in a dry run."""
    record(folder, write_log(root))
    write_key(root / "other", number=7)
    with pytest.raises(StatementError, match="has the outcome"):
        preregister_table("runs.csv", "hero.yaml", key="other", signer="bob@example.org", on_message=lambda _: None)
    dry = ["preregister", "--table", "runs.csv", "--target", "hero.yaml", "--dry-run", "--as", "bob@example.org"]
    assert "has the outcome" in str(CliRunner().invoke(app, dry).exception)


def test_an_unknown_choice_is_refused_before_the_fit(root: Path) -> None:
    """With the choices that there are."""
    with pytest.raises(UsageError, match="wher"):
        register(wher={"mix": "web"})


def test_a_log_of_another_kind_is_refused(folder: Path, root: Path) -> None:
    """A history in JSON lines, where a CSV was promised; the fix names the promised kind, or the command to withdraw."""
    runs = pd.read_csv(write_log(root))
    runs.to_json("log.jsonl", orient="records", lines=True)
    with pytest.raises(VerificationError, match="json") as refusal:
        record(folder, "log.jsonl")
    assert "csv" in refusal.value.fix
    assert f"registry withdraw {folder.name}" in refusal.value.fix
    with pytest.raises(VerificationError) as untracked:
        track_outside(folder, "log.jsonl")
    assert untracked.value.fix == refusal.value.fix


def test_all_missing_keys_are_named_at_once_with_their_meaning(root: Path) -> None:
    """Also those of the outcome."""
    Path("bare.yaml").write_text("name: bare\noutcome: {tracker: json}\n")
    with pytest.raises(LadderFileError) as refusal:
        read_target_file(Path("bare.yaml"))
    required = [name for name, field in TargetFile.model_fields.items() if field.is_required() and name != "name"]
    missing = [*(name for name in required if name != "outcome"), "outcome.project", "outcome.run", "outcome.key"]
    named = {line.split(": ")[1]: line for line in refusal.value.lines}
    assert set(named) == set(missing)
    assert "Trained tokens" in named["tokens"]


def test_the_help_has_a_complete_target_file(root: Path) -> None:
    """It can be copied as it is."""
    shown = CliRunner().invoke(app, ["preregister", "--help"]).output.splitlines()
    first = next(at for at, line in enumerate(shown) if line.strip().startswith("name: "))
    block = shown[first : shown.index("", first)]
    Path("copied.yaml").write_text("\n".join(block) + "\n")
    assert read_target_file(Path("copied.yaml")).outcome.tracker == "json"


def test_a_table_that_is_not_text_is_refused(root: Path) -> None:
    """With the command that writes it as text."""
    pd.read_csv("runs.csv").to_parquet("runs.parquet")
    with pytest.raises(UsageError, match="marin-scale table"):
        preregister_table("runs.parquet", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None)


def test_a_forecast_of_an_outside_run_can_be_withdrawn_before_it(folder: Path) -> None:
    """Its registrant states how much of the run was seen; without that the command refuses."""
    said = {"reason": "the run is put off", "key": Path("key"), "signer": PRINCIPAL, "on_message": lambda _: None}
    with pytest.raises(UsageError, match="--steps-seen"):
        sign_notice(folder, "withdraw", **said)
    sign_notice(folder, "withdraw", steps_seen=0, **said)
    assert check(folder).state is State.WITHDRAWN
    with pytest.raises(SigningError):
        record(folder, "log.csv")


def test_only_the_registrant_and_the_resolver_read_an_outcome(folder: Path, root: Path) -> None:
    """The statement names both."""
    with pytest.raises(StatementError):
        record_outcome(folder, str(write_log(root)), key="key", signer="eve@example.org", on_message=lambda _: None)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"planned_start": "2020-01-01"}, StatementError),
        ({"promise": {"due": day(20)}}, StatementError),
        ({"metric": "accuracy"}, LadderFileError),
        ({"flops": 1e19}, StatementError),
        ({"params": -1}, LadderFileError),
        ({"outcome": {"tracker": "csv", "project": "lab/hero", "run": "hero-1"}}, LadderFileError),
        ({"trainer": None}, LadderFileError),
    ],
)
def test_a_target_that_cannot_be_promised_is_refused(
    root: Path, tmp_path_factory: pytest.TempPathFactory, changes: dict, error: type[MarinScalingError]
) -> None:
    """Before anything is written."""
    place = tmp_path_factory.mktemp("refused")
    write_files(place, **changes)
    with contextlib.chdir(place), pytest.raises(error):
        register()
    assert not (place / "preregistrations").exists()


def test_all_faults_of_a_target_file_are_named_at_once(root: Path) -> None:
    """A wrong number, a missing key and an unknown one."""
    Path("hero.yaml").write_text(yaml.safe_dump(target(params=-1, trainer=None, colour="red")))
    with pytest.raises(LadderFileError) as refusal:
        register()
    assert all(name in str(refusal.value) for name in ("params", "trainer", "colour"))


def test_counts_of_a_target_file_may_have_letters(root: Path) -> None:
    """Spelled as in options; what is signed are plain numbers, and another word is refused."""
    sizes = {"params": "1B", "active_params": "1e9", "tokens": "20B", "flops": "1.2e20 FLOPs"}
    Path("letters.yaml").write_text(yaml.safe_dump(target(**sizes)))
    numbers = target(active_params=1e9)
    signed = read_target_file(Path("letters.yaml")).target()
    assert [signed.params, signed.active_params, signed.tokens] == [10**9, 10**9, 2 * 10**10]
    assert signed.flops == numbers["flops"]
    Path("letters.yaml").write_text(yaml.safe_dump(target(**dict.fromkeys(sizes, "12 apples"))))
    with pytest.raises(LadderFileError) as refusal:
        read_target_file(Path("letters.yaml"))
    assert len(refusal.value.lines) == len(sizes)


def test_choices_outside_the_interval_are_named_before_signing(root: Path) -> None:
    """Each with its median, beside the ends of the interval."""
    said: list[str] = []
    evidence = forecast_outside("runs.csv", read_target_file(Path("hero.yaml")), on_message=said.append)
    (found,) = evidence.forecast["predictions"]
    low, high = (found["quantiles"][level] for level in ("0.05", "0.95"))
    outside = [row for row in found["sensitivity"] if row["median"] is not None and not low <= row["median"] <= high]
    assert outside
    flat = [" ".join(each.split()) for each in said if each.startswith("warning: ")]
    (warning,) = [each for each in flat if f"{low:.4f}, {high:.4f}" in each]
    assert all(f"{row['choice']}: {row['median']:.4f}" in warning for row in outside)
    others = [row for row in found["sensitivity"] if row["median"] is not None and not row["choice"].endswith("as forecast")]
    assert f"{len(outside)} of {len(others)} " in warning


@pytest.mark.parametrize("files", [(pd.DataFrame({"loss": [2.5]}), "hero.yaml"), ("runs.csv", {"name": "hero"})])
def test_a_table_or_target_that_is_no_file_is_refused(root: Path, files: tuple) -> None:
    """The error names its type."""
    with pytest.raises(UsageError) as refusal:
        preregister_table(*files, key="key", signer=PRINCIPAL, on_message=lambda _: None)
    assert any(f" {type(each).__name__}," in str(refusal.value) for each in files if not isinstance(each, str))


def test_a_registration_is_shown_in_one_line(root: Path, folder: Path) -> None:
    """Its folder, its registrant and its digest; not its bytes."""
    statement = read_registration(folder)
    shown = repr(Registration(folder=folder, statement=statement, target=None))
    assert all(fact in shown for fact in (str(folder), PRINCIPAL, statement.sha256))
    assert len(shown) < len(str(folder)) + 150


def test_the_page_states_the_assurance_once(root: Path, folder: Path) -> None:
    """With its meaning; the other mention is the evidence of `verify`."""
    text = page(root, f"preregistrations/{folder.name}.md")
    assert text.count("tracked") == 1 + sum("tracked" in step.evidence for step in verify(folder).steps)
    assert ASSURANCE["tracked"] in text


def test_a_table_elsewhere_is_refused(root: Path) -> None:
    """Others could not find it by its path."""
    with pytest.raises(UsageError):
        preregister_table(root / "runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None)


def test_one_run_has_one_forecast_by_one_person(root: Path) -> None:
    """Also under another name, of another size, in other words."""
    Path("hero.yaml").write_text(yaml.safe_dump(target(name="again", schedule="cosine", data="the same")))
    with pytest.raises(StatementError):
        register()


def test_two_people_forecast_one_run_and_each_is_scored(folder: Path, root: Path) -> None:
    """From the same target file; each reads the log, and the registry verifies as a whole."""
    write_key(root / "other", number=7)
    other = preregister_table(
        "runs.csv", "hero.yaml", key="other", signer="bob@example.org", slug="bobs", on_message=lambda _: None
    )
    log = str(write_log(root))
    mine = record(folder, log)
    his = record_outcome(other, log, key="other", signer="bob@example.org", on_message=lambda _: None)
    assert mine.outcome["value"] == his.outcome["value"]
    assert all(each.refusal is None for each in verify_registry(runs_dir=Path("runs")))


def test_commands_for_runs_of_this_tool_refuse_an_outside_run(folder: Path) -> None:
    """With the command that records its outcome."""
    from marin_scaling.preregistration.preregister import amend_forecast, train_target
    from marin_scaling.preregistration.tracked_run import named_spec

    for refused in (
        lambda: train_target(folder),
        lambda: named_spec(str(folder)),
        lambda: amend_forecast(folder, reason="new runs", key=Path("key"), signer=PRINCIPAL),
    ):
        with pytest.raises(UsageError, match="marin-scale outcome"):
            refused()


def test_a_record_of_this_tool_has_no_outcome_to_read(root: Path, tmp_path: Path) -> None:
    """`check` compares it with its run."""
    from registration_factory import make_registration

    bound = make_registration(tmp_path / "bound").folder
    with pytest.raises(UsageError, match="marin-scale check"):
        record_outcome(bound, "log.csv", registry=bound.parent, on_message=lambda _: None)


def test_a_changed_table_is_refused(folder: Path) -> None:
    """The statement has its digest."""
    Path("runs.csv").write_text(Path("runs.csv").read_text() + "\n")
    with pytest.raises(VerificationError):
        verify(folder)


TEXT_LOGS = {"megatron": ("validation lm loss", megatron_log), "maxtext": ("eval_loss", maxtext_log)}


@pytest.fixture(params=TEXT_LOGS)
def in_text(root: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A forecast whose log will be text, and its kind."""
    outcome = {"tracker": request.param, "project": "lab/hero", "run": RUN, "key": TEXT_LOGS[request.param][0]}
    return register_outside(root, name="text", outcome=outcome), request.param


def test_the_outcome_of_a_text_log_is_signed_checked_and_shown(in_text: tuple[Path, str], root: Path) -> None:
    """From the output of the trainer to a page of the site; what the log lacks is named."""
    folder, kind = in_text
    verdict = record(folder, write_lines(root / "slurm.out", *TEXT_LOGS[kind][1]()))
    assert verdict.state is State.HELD
    assert verdict.outcome["value"] == pytest.approx(LOSS, abs=5e-4)
    step = next(step for step in verify(folder).steps if step.what == "observed")
    lacking = step.evidence.partition("not checked:")[2]
    assert "project" in lacking
    assert ("start" in lacking) is (kind == "maxtext")
    assert not any(word in lacking for word in ("tokens", "state", "name of the run"))
    assert check(folder).state is State.HELD
    shown = page(root, f"preregistrations/{folder.name}.md")
    assert RUN in shown
    assert "not in its log" in shown


def test_processes_beside_each_other_find_what_one_finds(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused forecast among sound ones, in the order of the folders."""
    for number, name in enumerate(["bob", "carol"], 7):
        write_key(root / name, number=number)
        quiet = {"on_message": lambda _: None}
        preregister_table("runs.csv", "hero.yaml", key=name, signer=f"{name}@example.org", slug=f"by-{name}", **quiet)
    path = next((root / "preregistrations").glob("*-by-bob")) / "forecast.json"
    path.write_bytes(path.read_bytes().replace(b"2.", b"1.", 1))
    alone = list(verify_registry(runs_dir=Path("runs")))
    monkeypatch.setattr(verification, "_FEW", 2)
    monkeypatch.setattr(verification.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    beside = list(verify_registry(runs_dir=Path("runs")))
    assert beside == alone
    assert [each.refusal is None for each in alone] == [False, True, True]
    assert folder.name == alone[2].folder.name
