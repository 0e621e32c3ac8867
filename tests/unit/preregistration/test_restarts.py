"""Restarts of outside runs under other ids: declared by a signed notice, and joined when the outcome is read."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from outside_factory import (
    AGAIN,
    AGAIN_RUN,
    FIRST,
    KEY,
    LOSS,
    PRINCIPAL,
    RUN,
    TOKENS,
    copy_of_registered,
    register_outside,
    restart,
    target,
    write_files,
    write_key,
    write_part,
)
from typer.testing import CliRunner

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError, SigningError, StatementError, UsageError
from marin_scaling.preregistration.outcome import State, Verdict
from marin_scaling.preregistration.outside import preregister_table, record_outcome
from marin_scaling.preregistration.registry import allow_signer
from marin_scaling.preregistration.signing.keys import load_signing_key
from marin_scaling.preregistration.verdict import check
from marin_scaling.preregistration.verification import verify, verify_registry
from marin_scaling.publish.forecast_page import forecast_page

BOB = "bob@example.org"


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


def record(folder: Path, *logs: str, **choices) -> Verdict:
    return record_outcome(folder, *logs, key="key", signer=PRINCIPAL, on_message=lambda _: None, **choices)


def read(folder: Path) -> dict:
    return json.loads((folder / "observed" / "observed.json").read_bytes())


def soon(hours: int = 1) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def refuses(folder: Path, *logs: str, names: tuple[str, ...]) -> None:
    """Each name is in the refusal, and nothing is written."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(MarinScalingError) as refusal:
        record(folder, *logs)
    assert all(name in str(refusal.value) for name in names), str(refusal.value)
    assert sorted(folder.rglob("*")) == before


def test_the_logs_of_declared_ids_are_one_run(folder: Path, root: Path) -> None:
    """In whatever order they are named; the reading has all digests and the places where they join."""
    restart(folder)
    logs = [write_part(root, AGAIN_RUN, AGAIN, ended=soon(2)), write_part(root, RUN, FIRST, ended=soon())]
    verdict = record(folder, *logs)
    assert verdict.state is State.HELD
    assert verdict.outcome["value"] == pytest.approx(LOSS)
    assert {file["sha256"] for file in read(folder)["files"]} == {sha256_hex(Path(log).read_bytes()) for log in logs}
    places = [(run["run"], run["first_step"], run["last_step"]) for run in read(folder)["runs"]]
    assert places == [(RUN, 10, 100), (AGAIN_RUN, 110, 200)]
    assert all(each.refusal is None for each in verify_registry(runs_dir=Path("runs")))


def test_each_restart_is_named_in_check_verify_and_page(folder: Path, root: Path) -> None:
    """Before the outcome and after it."""
    restart(folder)
    assert "from step 101, hero-1 as hero-1b: a node failed" in check(folder).sentence
    record(folder, write_part(root, RUN, FIRST), write_part(root, AGAIN_RUN, AGAIN))
    assert "from step 101, hero-1 as hero-1b: a node failed" in check(folder).sentence
    steps = {step.what: step.evidence for step in verify(folder).steps}
    assert "hero-1 as hero-1b" in steps["restart"]
    assert "hero-1, hero-1b" in steps["observed"]
    page = next(text for name, text in forecast_page(root, folder).files.items() if name.endswith(".md"))
    assert b"hero-1 as hero-1b" in page


def test_a_run_is_restarted_more_than_once(folder: Path, root: Path) -> None:
    """From tokens, too, and from before the restart before it; repeated steps are named."""
    restart(folder)
    restart(folder, "hero-1c", from_tokens=TOKENS * 0.45)
    logs = [
        write_part(root, RUN, FIRST, ended=soon()),
        write_part(root, AGAIN_RUN, range(110, 141, 10), ended=soon(2)),
        write_part(root, "hero-1c", range(90, 201, 10), ended=soon(3)),
    ]
    verdict = record(folder, *logs)
    assert verdict.outcome["value"] == pytest.approx(LOSS)
    assert "hero-1c repeats from step 90 what hero-1b had logged to 140" in verdict.sentence
    assert check(folder).state is State.HELD


def test_one_folder_for_each_id_names_its_run(folder: Path, root: Path) -> None:
    """Where the tables have no column for it; the reading says so."""
    restart(folder)
    logs = []
    for run, steps in ((RUN, FIRST), (AGAIN_RUN, AGAIN)):
        (root / "logs" / run).mkdir(parents=True)
        shutil.move(write_part(root, run, steps, run=None), root / "logs" / run / "metrics.csv")
        logs.append(f"logs/{run}")
    assert record(folder, *reversed(logs)).outcome["value"] == pytest.approx(LOSS)
    assert "name of the run" in next(step for step in verify(folder).steps if step.what == "observed").evidence


def test_logs_that_name_no_run_are_joined_in_their_order(folder: Path, root: Path) -> None:
    """And refused in another one."""
    restart(folder)
    one, two = write_part(root, "a", FIRST, run=None), write_part(root, "b", AGAIN, run=None)
    refuses(folder, two, one, names=("before 101",))
    assert record(folder, one, two).outcome["value"] == pytest.approx(LOSS)


def test_events_of_levanter_are_joined(root: Path) -> None:
    """Each id in a file of its own."""
    folder = register_outside(root, outcome={**target()["outcome"], "tracker": "levanter", "run": "lev"}, name="levanter")
    restart(folder, "lev-2")
    for run, steps in (("lev", FIRST), ("lev-2", AGAIN)):
        rows = [
            {"event": "log", "step": at, "metrics": {KEY: LOSS * 200 / at, "throughput/total_tokens": TOKENS * at / 200}}
            for at in steps
        ]
        events = [{"event": "hparams", "hparams": {"trainer/id": run}}, *rows, {"event": "finish", "summary": {}}]
        Path(f"{run}.jsonl").write_text("".join(json.dumps({"tracker": "json_logger", **event}) + "\n" for event in events))
    assert record(folder, "lev.jsonl", "lev-2.jsonl").outcome["value"] == pytest.approx(LOSS)
    assert read(folder)["runs"][1]["first_tokens"] == pytest.approx(TOKENS * 110 / 200)


def test_an_id_that_no_notice_declares_is_refused(folder: Path, root: Path) -> None:
    """With the command that declares it; also beside a declared one, and for a declared one without its log."""
    first, again, other = (
        write_part(root, RUN, FIRST),
        write_part(root, AGAIN_RUN, AGAIN),
        write_part(root, "hero-1c", AGAIN),
    )
    refuses(folder, first, again, names=(AGAIN_RUN, "marin-scale registry restart"))
    restart(folder)
    refuses(folder, first, other, names=("hero-1c", AGAIN_RUN))
    refuses(folder, first, again, other, names=("hero-1c",))
    refuses(folder, first, names=(AGAIN_RUN,))
    refuses(folder, again, names=(RUN,))


@pytest.mark.parametrize(
    ("place", "first", "again", "names"),
    [
        ({"from_step": 101}, FIRST, range(140, 201, 10), ("gap", "140", "101")),
        ({"from_step": 101}, range(10, 71, 10), AGAIN, ("gap", "70", "101")),
        ({"from_step": 101}, FIRST, range(90, 201, 10), ("90", "before 101")),
        ({"from_step": 101}, range(10, 201, 10), AGAIN, ("finished at step 200",)),
        ({"from_tokens": TOKENS / 2}, FIRST, range(140, 201, 10), ("gap", "1.4e+10", "1e+10")),
        ({"from_tokens": TOKENS / 2}, range(10, 71, 10), AGAIN, ("gap", "7e+09", "1e+10")),
        ({"from_tokens": TOKENS / 2}, FIRST, range(90, 201, 10), ("9e+09", "before 1e+10")),
    ],
)
def test_logs_that_do_not_join_at_the_declared_place_are_refused(
    folder: Path, root: Path, place: dict, first: range, again: range, names: tuple[str, ...]
) -> None:
    """A gap before or after it, a start before it, and the repetition of a run that had finished."""
    restart(folder, **place)
    refuses(folder, write_part(root, RUN, first), write_part(root, AGAIN_RUN, again), names=names)


def test_a_value_from_after_the_declared_step_of_the_earlier_log_does_not_count(folder: Path, root: Path) -> None:
    """The restart logged no loss, so there is none."""
    restart(folder, from_step=100)
    logs = [write_part(root, RUN, range(10, 199)), write_part(root, AGAIN_RUN, range(100, 201), **{KEY: None})]
    refuses(folder, *logs, names=(KEY,))


def test_a_notice_from_after_the_end_of_the_run_is_refused_as_late(folder: Path, root: Path) -> None:
    """By the times of the log; without times it is said that they were not compared."""
    ended = datetime.now(UTC) - timedelta(seconds=1)
    restart(folder)
    refuses(folder, write_part(root, RUN, FIRST), write_part(root, AGAIN_RUN, AGAIN, ended=ended), names=("is late",))
    record(folder, write_part(root, RUN, FIRST), write_part(root, AGAIN_RUN, AGAIN))
    assert "end of the run" in next(step for step in verify(folder).steps if step.what == "observed").evidence


def test_a_restart_that_began_before_the_forecast_is_refused(folder: Path, root: Path) -> None:
    """It was trained before, and its loss known; so is one that began before the run that it continues."""
    restart(folder)
    old, late = datetime.now(UTC) - timedelta(days=30), datetime.now(UTC) + timedelta(days=1)
    refuses(
        folder, write_part(root, RUN, FIRST), write_part(root, AGAIN_RUN, AGAIN, ended=old), names=("before the statement",)
    )
    logs = [write_part(root, RUN, FIRST, ended=late), write_part(root, AGAIN_RUN, AGAIN, ended=soon())]
    refuses(folder, *logs, names=("before hero-1, which it continues",))


def allowed(root: Path, folder: Path, name: str) -> str:
    """A second person who may sign, with a key of their own."""
    write_key(root / "other", number=7)
    key = load_signing_key(root / "other", note="")
    allow_signer(folder.parent, principal=name, key=key.public_key, at=datetime.now(UTC) - timedelta(days=1))
    return "other"


def test_the_resolver_declares_a_restart_too(root: Path) -> None:
    """With a key of their own."""
    promise = {**target()["promise"], "resolver": BOB}
    folder = register_outside(root, name="resolved", outcome={**target()["outcome"], "run": "r1"}, promise=promise)
    restart(folder, "r2", signer=BOB, key=allowed(root, folder, BOB))
    assert {step.what for step in verify(folder).steps} >= {"restart"}


def test_nobody_else_declares_a_restart(folder: Path, root: Path) -> None:
    """Though they may sign."""
    with pytest.raises(SigningError, match="neither"):
        restart(folder, signer="eve@example.org", key=allowed(root, folder, "eve@example.org"))


@pytest.mark.parametrize(
    ("run", "place", "named"),
    [
        (RUN, {"from_step": 1}, RUN),
        (AGAIN_RUN, {"from_step": 1}, AGAIN_RUN),
        ("hero-2", {"from_step": None}, "neither"),
        ("hero-2", {"from_step": 1, "from_tokens": 1.0}, "from_step and from_tokens"),
        ("", {"from_step": 1}, "run"),
    ],
)
def test_a_restart_has_an_id_of_its_own_and_one_place(folder: Path, run: str, place: dict, named: str) -> None:
    """Nothing is written otherwise."""
    restart(folder)
    before = sorted(folder.rglob("*"))
    with pytest.raises(MarinScalingError, match=named):
        restart(folder, run, **place)
    assert sorted(folder.rglob("*")) == before


def test_the_run_of_another_forecast_is_no_restart(folder: Path, root: Path) -> None:
    """Nor is a declared restart forecast as a run of its own; another person's forecast of the same run declares it, too."""
    register_outside(root, name="another", outcome={**target()["outcome"], "run": "hero-2"})
    with pytest.raises(SigningError, match="another"):
        restart(folder, "hero-2")
    restart(folder)
    write_files(root, name="third", outcome={**target()["outcome"], "run": AGAIN_RUN})
    with pytest.raises(StatementError, match="restart"):
        preregister_table("runs.csv", "hero.yaml", key="key", signer=PRINCIPAL, on_message=lambda _: None)
    write_files(root, name="bobs")
    write_key(root / "other", number=7)
    bobs = preregister_table("runs.csv", "hero.yaml", key="other", signer=BOB, on_message=lambda _: None)
    restart(bobs.folder.absolute(), signer=BOB, key="other")
    assert all(each.refusal is None for each in verify_registry(runs_dir=Path("runs")))


def test_a_run_of_this_tool_has_no_restart(tmp_path: Path) -> None:
    """It resumes under its own id."""
    from registration_factory import make_registration

    made = make_registration(tmp_path)
    write_key(tmp_path / "key", number=0)
    with pytest.raises(SigningError, match="its own id"):
        restart(made.folder)


def test_no_restart_is_declared_after_the_outcome(folder: Path, root: Path) -> None:
    """It is read once."""
    record(folder, write_part(root, RUN, range(10, 201, 10)))
    with pytest.raises(UsageError):
        restart(folder)


def test_the_commands_declare_and_join(folder: Path, root: Path) -> None:
    """As typed."""
    signer = ["--key", "key", "--as", PRINCIPAL]
    said = ["registry", "restart", folder.name, "--restarted-as", AGAIN_RUN, "--from-tokens", f"{TOKENS / 2}", "--reason", "x"]
    assert CliRunner().invoke(app, [*said, *signer]).exit_code == 0
    logs = ["--log", write_part(root, RUN, FIRST), "--log", write_part(root, AGAIN_RUN, AGAIN)]
    done = CliRunner().invoke(app, ["outcome", folder.name, *logs, *signer])
    assert done.exit_code == 0, done.output
    assert "from 10.0B tokens, hero-1 as hero-1b" in " ".join(done.output.split())
