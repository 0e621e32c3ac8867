"""What was said of a preregistration after it was made: whether it ends it, and whether it came in time.

Whoever takes a forecast back has to do so before its run: by the notice's word, the log's, and the run's record.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from marin_scaling.check.received import Receipts, known_at
from marin_scaling.check.state import State, Verdict, verdict_of
from marin_scaling.preregistration.notice import NOTICE_NAME, Notice
from marin_scaling.preregistration.registry import OUTCOME_NAME
from marin_scaling.preregistration.statement import Statement, parse_moment
from marin_scaling.regular_files import is_present
from marin_scaling.run.run_spec import RunSpec
from marin_scaling.run.run_store import is_finished, read_run, run_folder


def ended_by(
    notices: Sequence[Notice],
    *,
    folder: Path,
    statement: Statement,
    spec: RunSpec,
    runs_dir: Path,
    receipts: Receipts | None = None,
) -> Verdict | None:
    """The verdict where the registrant took the forecast back, or its resolver found it void; None where neither did."""
    for notice in notices:
        said = notice.sentence
        if notice.kind == "void":
            return verdict_of(
                statement, state=State.VOID, sentence=f"void ({notice.document['condition']}), {said}", outcome=None
            )
        if notice.kind == "withdraw" and (
            late := _too_late(notice, folder=folder, statement=statement, spec=spec, runs=runs_dir, receipts=receipts)
        ):
            sentence = f"withdrawn after {late}, which counts as missed, {said}"
            return verdict_of(statement, state=State.WITHDRAWN_LATE, sentence=sentence, outcome=None)
        if notice.kind == "withdraw":
            return verdict_of(statement, state=State.WITHDRAWN, sentence=f"withdrawn before its run, {said}", outcome=None)
    return None


def _too_late(
    notice: Notice, *, folder: Path, statement: Statement, spec: RunSpec, runs: Path, receipts: Receipts | None
) -> str | None:
    """What had happened when a forecast was taken back, so that it counts as missed; None where nothing had."""
    at = known_at(notice.at, f"{notice.name}/{NOTICE_NAME}", folder=folder, receipts=receipts)
    if notice.document["target_steps_seen"] or is_present(folder / OUTCOME_NAME) or _had_begun(spec, runs=runs, at=at):
        return "its run began"
    return "it was due" if statement.is_overdue(at=at) else None


def _had_begun(spec: RunSpec, *, runs: Path, at: datetime) -> bool:
    return is_finished(runs, spec) and parse_moment(read_run(run_folder(runs, spec)).record.started_at) <= at


def deviations(notices: Sequence[Notice]) -> str:
    """What is said of a run that left its recipe, to stand behind its score; empty where nothing is."""
    said = [f"from step {each.document['from_step']}: {each.document['reason']}" for each in notices if each.kind == "deviate"]
    return f"; its run left the recipe {'; '.join(said)}" if said else ""
