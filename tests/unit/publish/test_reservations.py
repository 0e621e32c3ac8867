"""The page of a forecast states the warnings that `check` prints of its time."""

from datetime import UTC, datetime
from pathlib import Path

from one_page import page
from registration_factory import make_registration, store_run

from marin_scaling.preregistration.layout import LOG_NAME
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.verdict import check_preregistration


def test_a_forecast_that_was_logged_after_its_run_had_begun_says_so(tmp_path: Path) -> None:
    """As `check` does."""
    made = make_registration(tmp_path)
    store_run(tmp_path / "runs", spec=made.target, loss=2.5, day="2026-11-21")
    (made.folder.parent / LOG_NAME).unlink()
    write_down(made.folder.parent, at=datetime(2026, 11, 22, tzinfo=UTC))
    verdict = check_preregistration(
        made.folder,
        runs_dir=tmp_path / "runs",
        allowed_signers=made.folder.parent / "allowed_signers",
        checked_at=datetime(2026, 11, 23, tzinfo=UTC),
    )
    write_down(made.folder.parent, at=datetime(2026, 11, 23, tzinfo=UTC))
    said = "logged at 2026-11-22T00:00:00Z, after its run had begun at 2026-11-21T10:00:00Z"
    assert said in verdict.sentence
    assert said.lower() in page(tmp_path, f"preregistrations/{made.folder.name}.md").lower()
