"""The registered forecasts of this repository, and the recorded runs that answer them."""

from pathlib import Path

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.run.store import StoredRun, read_runs

ROOT = Path(__file__).parents[1]


def registered(ladder: str) -> Path:
    """The folder of the forecast of a ladder's target."""
    (found,) = (ROOT / "preregistrations").glob(f"*-{ladder}")
    return found


def answering_run(folder: Path) -> StoredRun:
    """The run that carries the statement in `folder`."""
    statement = sha256_hex((folder / "statement.json").read_bytes())
    ladder = folder.name.split("-", 3)[3]
    (run,) = [each for each in read_runs(ROOT / "runs" / ladder) if each.spec.statement_sha256 == statement]
    return run
