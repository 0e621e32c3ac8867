"""`marin-scale verify` and `check`, as a person types them."""

import json
import subprocess
import sys

import pytest
from registration_factory import CREATED_AT, PRINCIPAL, make_registration, signing_key, store_run
from typer.testing import CliRunner

from marin_scaling import __version__
from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError, SigningError, UsageError, VerificationError
from marin_scaling.preregistration.events.notice import give_notice


@pytest.fixture
def registration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_registration(tmp_path)


def marin_scale(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_run_verifies_before_it_trains(registration):
    """A statement that was edited is a "no" before an hour is spent on its target."""
    path = registration.folder / "statement.json"
    path.write_bytes(path.read_bytes().replace(f'"{__version__}"'.encode(), b'"0.1.9"', 1))
    result = marin_scale("run", registration.folder)
    assert isinstance(result.exception, VerificationError)
    assert "did not sign these bytes" in str(result.exception)


def test_verify_prints_one_line_a_step(registration):
    """What was checked, that it held, and by which evidence."""
    result = marin_scale("verify", "all")
    assert result.exit_code == 0
    first, *steps = result.stdout.splitlines()
    assert first == "2026-11-20-tiny-target"
    held = ("statement", "subjects", "signature", "forecast", "run", "ladder", "log")
    assert [line.split()[:2] for line in steps if "fit " not in line] == [[what, "ok"] for what in held]
    assert (
        f"  fit        --  the law 'E + A * C^-alpha' is not one of marin-scaling {__version__}: the number is claimed" in steps
    )


def test_verify_says_what_is_wrong_and_exits_with_1(registration):
    """The reason stands on standard error, in full."""
    (registration.folder / "ladder.json").unlink()
    result = marin_scale("verify", registration.folder.name)
    assert result.exit_code == 1
    assert "ladder.json is missing" in result.stderr
    assert "fix:" in result.stderr


def test_an_empty_registry_is_said_to_be_empty(tmp_path, monkeypatch):
    """Silence would look like success."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preregistrations").mkdir()
    for command in ("verify", "check"):
        result = marin_scale(command)
        assert result.exit_code == 0
    assert result.stdout.startswith("preregistrations has no preregistrations.")


def test_signers_that_nobody_can_read_are_found_before_the_first_forecast(tmp_path, monkeypatch):
    """Else they are found when it is too late for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preregistrations").mkdir()
    (tmp_path / "preregistrations" / "allowed_signers").write_text("ada@example.org no-key\n")
    result = marin_scale("verify", "all")
    assert isinstance(result.exception, MarinScalingError)
    assert "allowed_signers, line 1" in str(result.exception)


def test_a_missing_registry_is_bad_input(tmp_path, monkeypatch):
    """The error names the folder and the option."""
    monkeypatch.chdir(tmp_path)
    result = marin_scale("verify")
    assert isinstance(result.exception, MarinScalingError)
    assert result.exception.exit_status == 2
    assert "--registry" in result.exception.fix


def test_check_of_a_pending_forecast_exits_with_0(registration):
    """Not run yet is no failure, not even with --strict."""
    result = marin_scale("check", "--strict")
    assert result.exit_code == 0
    assert "no outcome yet: 2.5000 bits/byte was forecast" in result.stdout


def test_a_missed_forecast_is_a_result_unless_strict(registration, tmp_path):
    """Exit status 1 only for those who ask for it."""
    store_run(tmp_path / "runs", spec=registration.target, loss=3.0, day="2026-11-21")
    assert marin_scale("check").exit_code == 0
    result = marin_scale("check", "--strict")
    assert result.exit_code == 1
    assert "missed: observed 3.0000 bits/byte, forecast 2.5000 (90 % interval" in result.stdout


def test_check_json_is_only_json(registration, tmp_path):
    """For scripts: states, sentences and outcomes."""
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5, day="2026-11-21")
    [verdict] = json.loads(marin_scale("check", "--json").stdout)
    assert verdict["state"] == "held"
    assert verdict["outcome"]["scores"]["hit"] is True


def test_check_of_a_refused_registration_exits_with_1(registration):
    """What is not authentic has no verdict."""
    (registration.folder / "ladder.json").write_bytes(b"{}\n")
    result = marin_scale("check")
    assert result.exit_code == 1
    assert "refused: " in result.stdout


@pytest.mark.parametrize("command", ["verify", "check"])
def test_help_ends_with_an_example(command):
    """The last line can be typed as it stands."""
    assert f"Example: marin-scale {command} all" in marin_scale(command, "--help").stdout


def test_verify_loads_nothing_heavy(registration):
    """All but the re-fit, on any machine: no training, fitting or drawing library, no model of a file format."""
    program = (
        "import sys; from marin_scaling.cli import main; sys.argv = ['marin-scale', 'verify', 'all', '--no-refit']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = {'jax', 'levanter', 'scipy', 'altair', 'pandas', 'numpy', 'ray', 'marin_scaling.run.spec'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "signature  ok" in done.stdout


def test_run_trains_nothing_that_was_taken_back(registration):
    """Its forecast has ended: no run answers it."""
    give_notice(registration.folder, "withdraw", key=signing_key(), principal=PRINCIPAL, at=CREATED_AT, reason="cancelled")
    result = marin_scale("run", registration.folder)
    assert isinstance(result.exception, SigningError)
    assert "notice-1-withdraw" in str(result.exception)


def test_run_trains_nothing_that_the_log_does_not_know(registration):
    """Then nobody could say later that the forecast was there first."""
    give_notice(registration.folder, "deviate", key=signing_key(), principal=PRINCIPAL, at=CREATED_AT, reason="x", from_step=1)
    result = marin_scale("run", registration.folder)
    assert isinstance(result.exception, VerificationError)
    assert "notice-1-deviate/notice.json is not in the log" in str(result.exception)
    assert "marin-scale registry log" in str(result.exception)


@pytest.mark.parametrize("name", ["my_runs.csv", "runs.parquet", "runs.jsonl", "runs.csv.gz"])
def test_a_table_of_runs_is_no_ladder_to_preregister(tmp_path, monkeypatch, name):
    """The error states the reason, and the command that preregisters an outside run from the table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("flops,params,tokens,loss\n1e18,1e8,1e9,3.1\n")
    error = marin_scale("preregister", name).exception
    assert isinstance(error, UsageError)
    assert "outside run" in error.why
    assert f"marin-scale preregister --table {name} --target" in error.fix
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    assert "ladders/tiny.yaml" in marin_scale("preregister", "runs/tiny").exception.fix


def test_a_table_needs_its_target_and_takes_no_seal(tmp_path, monkeypatch):
    """Each is refused before anything is read."""
    monkeypatch.chdir(tmp_path)
    for arguments in (["--table", "a.csv"], ["--target", "b.yaml"], []):
        assert "--target" in marin_scale("preregister", *arguments).exception.what
    sealed = marin_scale("preregister", "--table", "a.csv", "--target", "b.yaml", "--seal-until", "2027-01-01")
    assert "--seal-until" in sealed.exception.what


@pytest.mark.parametrize("option", [["--table", "a.csv"], ["--where", "mix=web"], ["--drop", "r1"], ["--skip-incomplete"]])
def test_a_ladder_file_takes_no_options_of_a_table(tmp_path, monkeypatch, option):
    """None of them is ignored silently."""
    monkeypatch.chdir(tmp_path)
    assert "no options that read a table" in marin_scale("preregister", "ladders/tiny.yaml", *option).exception.what


def test_check_names_the_files_to_commit_once(registration, tmp_path):
    """After it has written an outcome."""
    store_run(tmp_path / "runs", spec=registration.target, loss=2.5633, day="2026-11-21")
    said = marin_scale("check").stdout
    assert "git add preregistrations runs && git commit" in said
    assert "error -0.0633 (forecast too low" in said
    assert "git add" not in marin_scale("check").stdout
