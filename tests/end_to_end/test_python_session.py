"""The session of a Python user: plan and train a ladder, fit it, preregister its target, verify and check."""

from pathlib import Path

import pytest
from command_line import SMALL_LADDER

import marin_scaling as ms
from marin_scaling.preregistration.outcome import State


@pytest.mark.train
def test_a_session_goes_from_a_ladder_to_a_checked_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the commands do, in one process, without a command line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    (tmp_path / "ladders").mkdir()
    (tmp_path / "ladders" / "tiny.yaml").write_text(SMALL_LADDER)
    ladder = ms.load_ladder("ladders/tiny.yaml")
    assert len(ladder.plan().frame) == 12
    trained = ladder.train()
    assert not trained.stopped
    assert not trained.diverged
    fit = ms.fit(ms.load_runs(trained.runs_dir))
    assert fit.forecast("1.6e11").interval(0.9)[0] > 0
    registration = ms.preregister(ladder, signer="ada@example.org")
    assert {"signature", "fit", "log"} <= {step.what for step in ms.verify(registration).steps}
    assert ms.check(registration).state is State.PENDING
    assert "Signed and registered" in capsys.readouterr().out
