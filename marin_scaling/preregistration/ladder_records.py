"""The signed ladder: as a run table, and compared with the records of fitted, excluded and target runs."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import zip_longest
from math import exp, isclose, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from marin_scaling.canonical_json import has_digest, load_canonical, sha256_hex
from marin_scaling.errors import DocumentError, MarinScalingError, RunTableError, refuse
from marin_scaling.files import read_plain
from marin_scaling.git import restored_by, restoring, restoring_command
from marin_scaling.preregistration.layout import OUTCOME_NAME
from marin_scaling.preregistration.outcome import VerifiedStep
from marin_scaling.preregistration.register import ladder_row
from marin_scaling.preregistration.statement import Statement, parse_moment, size_of, thinned
from marin_scaling.printable import joined
from marin_scaling.strict_model import SHA256, Open, Positive, Text, check_document
from marin_scaling.untrusted_files import MOST_TABLE_BYTES, is_present

if TYPE_CHECKING:
    import pandas as pd

    from marin_scaling.run.spec import RunSpec
    from marin_scaling.run.table import ReadingChoices, RunTable
    from marin_scaling.run.table_io import RawTable


def ladder_table(ladder: Mapping[str, Any]) -> RunTable:
    """Return the rows of `ladder.json` (its content) as the run table that was fitted: none is converted or left out."""
    import pandas as pd

    from marin_scaling.run.cells import Sweep
    from marin_scaling.run.groups import audit_kinds
    from marin_scaling.run.table import RunTable

    rows = pd.DataFrame(ladder["rows"])
    numbers = rows.drop(columns="run").astype("float64")
    if "active_params" in numbers:
        numbers["active_params"] = numbers["active_params"].fillna(numbers["params"])
    if "epochs" in numbers:
        numbers["epochs"] = numbers["epochs"].fillna(1.0)
    frame = pd.concat([rows["run"], numbers], axis=1)
    findings = tuple(audit_kinds(frame, frame[[]], sweep=Sweep()))
    return RunTable(
        frame=frame,
        warnings=tuple(each.message for each in findings),
        findings=findings,
        source="ladder.json",
        metric=ladder["metric"],
    )


class _Spec(Open):
    role: Text
    statement_sha256: SHA256 | None
    budget_flops: Positive
    recipe: Text
    data: dict[str, Any]
    evaluation: dict[str, Any]
    model: dict[str, Any]
    optimizer: dict[str, Any]


class _Record(Open):
    flops: Positive
    params_total: Positive
    params_active: Positive
    trained_tokens: Positive
    loss: float | None
    finished_at: Text
    history_sha256: SHA256


_FITTED = {
    "flops": "flops",
    "params": "params_total",
    "active_params": "params_active",
    "tokens": "trained_tokens",
    "loss": "loss",
}
"""Columns of `ladder.json` and their keys in a record."""
_RUN_NAME = re.compile(r"[0-9a-f]{16}")


def ladder_step(statement: Statement, *, ladder: Mapping[str, Any], where: str, runs_dir: Path) -> VerifiedStep:
    """Check that each row of `ladder` (the content of `ladder.json`, at `where`) equals its record, and that no run is
    missing.

    The step is not compared if the run store has no runs of that ladder.
    """
    ladder_dir = runs_dir / ladder["ladder"]
    if not holds_runs(ladder_dir):
        why = f"not compared: {ladder_dir} holds no runs here (go to the root of the repository, or name them: --runs)"
        return VerifiedStep(what="ladder", evidence=why, compared=False)
    _require_each_once(ladder["rows"], where=where)
    for row in ladder["rows"]:
        with restored_by(partial(_restoring_run, ladder_dir / row["run"][:16], is_record=partial(_is_record_of, row))):
            _compare_row(row, ladder_dir=ladder_dir, statement=statement, where=where)
    _check_nothing_left_out(statement, ladder["rows"], ladder_dir=ladder_dir)
    return VerifiedStep(what="ladder", evidence=f"{len(ladder['rows'])} rows equal to the records in {ladder_dir}")


def table_step(ladder: Mapping[str, Any], *, where: str, root: Path) -> VerifiedStep:
    """Check that the rows of `ladder` equal those of the table below `root` from which they were read.

    The step is not compared if the table is not there.
    """
    source, path = ladder["source"], root / ladder["source"]["path"]
    if not is_present(path):
        why = f"not compared: {source['path']} is not here; the statement has its digest, {source['sha256'][:16]}"
        return VerifiedStep(what="ladder", evidence=why, compared=False)
    _require_unchanged(path, source, where=where)
    curves = ladder.get("curves")
    if _changes_losses(curves) and not is_present(root / curves["path"]):
        why = f"not compared: {curves['path']} is not here, from which the losses of some runs were estimated"
        return VerifiedStep(what="ladder", evidence=why, compared=False)
    if _changes_losses(curves):
        _require_unchanged(root / curves["path"], curves, where=where)
    for stated, found in zip_longest(ladder["rows"], _rows_of_table(path, root, json.dumps([source, curves]))):
        if stated != found:
            refuse(
                f"{where} has the row {stated}, and {source['path']} says {found}",
                fix="Register the forecast anew, from the table.",
            )
    said = _compared_curves(ladder, where=where, root=root)
    return VerifiedStep(
        what="ladder",
        evidence=f"{len(ladder['rows'])} rows equal to those of {source['path']}{_estimated(curves)}{said}",
        compared="not compared" not in said,
    )


@lru_cache(maxsize=64)
def _rows_of_table(path: Path, root: Path, described: str) -> list[dict[str, Any]]:
    """Return the rows that are signed from a table whose digests hold; forecasts of one table read it once."""
    from marin_scaling.fitting.fit import chosen_runs
    from marin_scaling.run.table import signed_rows

    source, curves = json.loads(described)
    table = chosen_runs(read_signed_table(path, source["choices"], curves=curves, root=root))
    return [ladder_row(row) for row in signed_rows(table.frame)]


def read_signed_table(
    path: Path, choices: ReadingChoices, *, curves: Mapping[str, Any] | None, root: Path = Path()
) -> RunTable:
    """Read the runs of an outside run's forecast, whose final losses are estimated and converted as `curves` says.

    `curves` is that of `ladder.json` or of a target file. Losses of `curves["complete"]` are estimated, and those of a
    `runs_schedule` are converted to the target's schedule. `RunTableError` as in `read_run_table`, and for a run to complete
    that is missing, has a final loss, or no curve, or a run to convert without a curve.
    """
    table = _completed_table(path, choices, curves=curves, root=root)
    if not curves or not curves.get("schedule"):
        return table
    return _converted(table, curves, path=root / curves["path"])


def _changes_losses(curves: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Return True if losses of the table are estimated or converted from its curves."""
    return bool(curves and (curves["complete"] or curves.get("schedule")))


def _converted(table: RunTable, curves: Mapping[str, Any], *, path: Path) -> RunTable:
    """Return the table with losses of the target's schedule, to six digits."""
    from marin_scaling.fitting.fit import chosen_runs
    from marin_scaling.forecast.loss_curve import schedule_changes
    from marin_scaling.run.table import signed_rows

    fitted = chosen_runs(table)
    rows = [ladder_row(row) for row in signed_rows(fitted.frame)]
    changes = schedule_changes({**curves, "runs": curves_of_runs(path, rows, columns=curves["columns"])})
    if changes and (missing := [row["run"] for row in rows if row["run"] not in changes]):
        raise RunTableError(
            f"{path} has no curve of {joined(missing, most=6)}.",
            why="The loss of a run under another schedule is computed from its curve.",
            fix=f"Add the curves, or leave these runs out: --drop {missing[0]}",
        )
    losses = [float(f"{row['loss'] * exp(changes.get(row['run'], [0.0])[-1]):.6g}") for row in rows]
    return replace(fitted, frame=fitted.frame.assign(loss=losses))


def _completed_table(path: Path, choices: ReadingChoices, *, curves: Mapping[str, Any] | None, root: Path) -> RunTable:
    from marin_scaling.run.table import read_cells, read_run_table, table_of_frame
    from marin_scaling.run.table_io import number_in

    if not curves or not curves["complete"]:
        return read_run_table(path, **choices)
    raw = read_cells(path)
    cells, rows, loss = raw.cells.astype(object), *_unfinished(raw, choices, curves["complete"])
    known = [number for each in cells[loss] if (number := number_in(each)) is not None]
    cells.loc[[*rows.values()], loss] = min(known, default=1.0)  # any loss, to read the other columns
    frame = table_of_frame(cells, source=str(path), **choices).frame
    for run, estimate in _estimated_ends(root / curves["path"], frame, curves).items():
        cells.loc[rows[run], loss] = estimate
    return table_of_frame(cells, source=str(path), **choices)


def _unfinished(raw: RawTable, choices: ReadingChoices, complete: Sequence[str]) -> tuple[dict[str, int], str]:
    """Return the rows of the runs to complete, and the column of losses, which must be empty there."""
    from marin_scaling.run.columns import COLUMNS, candidates
    from marin_scaling.run.table_io import is_empty

    chosen = choices.get("columns", {})
    run, loss = (chosen.get(name) or next(iter(candidates(COLUMNS[name], raw)), "") for name in ("run", "loss"))
    names = [str(each).strip() for each in raw.cells[run]] if run in raw.cells else []
    rows = {name: place for place, name in enumerate(names) if name in complete}
    faults = [f"{raw.name} has no run {name}, which curves.complete names." for name in complete if name not in rows]
    faults += [
        f"{raw.name}, {raw.places[place]}: {name} has the loss {raw.cells[loss].iloc[place]}, and curves.complete names it."
        for name, place in rows.items()
        if loss in raw.cells and not is_empty(raw.cells[loss].iloc[place])
    ]
    if faults or loss not in raw.cells:
        raise RunTableError(
            tuple(faults) or f"{raw.name} has no column of losses.",
            why="Only the loss of a run that has not ended is estimated from its curve.",
            fix="Correct curves.complete in the target file, or the table.",
        )
    return rows, loss


_LEAST_MARKS = 10  # of the 20 at every 5 % of a run


def _estimated_ends(path: Path, frame: pd.DataFrame, curves: Mapping[str, Any]) -> dict[str, float]:
    """Return the final losses of the runs to complete, to six digits; `RunTableError` for a run without a curve."""
    from marin_scaling.forecast.loss_curve import estimated_end
    from marin_scaling.run.table import signed_rows

    rows = {row["run"]: ladder_row(row) for row in signed_rows(frame)}
    logged = {each["run"]: each["losses"] for each in curves_of_runs(path, [*rows.values()], columns=curves["columns"])}
    if missing := [run for run in curves["complete"] if run not in logged]:
        raise RunTableError(
            f"{path} has no curve of {joined(missing)}.",
            why="Its final loss is to be estimated from its curve.",
            fix="Add the curve, or leave the run out of curves.complete.",
        )
    if short := [run for run in curves["complete"] if sum(each is not None for each in logged[run]) < _LEAST_MARKS]:
        raise RunTableError(
            f"{path} has less than half of the curve of {joined(short)}.",
            why="The end of a run is only estimated from most of its curve.",
            fix="Leave the run out of curves.complete and out of the table.",
        )
    finished = [{**rows[run], "losses": losses} for run, losses in logged.items() if run not in curves["complete"]]
    return {run: float(f"{estimated_end({**rows[run], 'losses': logged[run]}, finished):.6g}") for run in curves["complete"]}


def _estimated(curves: Mapping[str, Any] | None) -> str:
    names = joined((curves or {}).get("complete", ()))
    converted = " (final losses converted to the target's schedule)" if (curves or {}).get("schedule") else ""
    return (f" (the final loss of {names} estimated from its curve)" if names else "") + converted


def _require_unchanged(path: Path, source: Mapping[str, Any], *, where: str) -> None:
    """Require that a signed table has its digest."""
    raw = read_plain(path, most_bytes=MOST_TABLE_BYTES)
    if sha256_hex(raw) != source["sha256"]:
        refuse(
            f"{source['path']} was changed after signing: it has the digest {sha256_hex(raw)}, and {where} promises "
            f"{source['sha256']}",
            fix=restoring(path, fits=partial(has_digest, digest=source["sha256"])),
        )


def _compared_curves(ladder: Mapping[str, Any], *, where: str, root: Path) -> str:
    """Compare the signed curves with their table; return in words what was compared, empty without curves."""
    curves = ladder.get("curves")
    if curves is None:
        return ""
    path = root / curves["path"]
    if not is_present(path):
        return f"; curves not compared: {curves['path']} is not here, digest {curves['sha256'][:16]}"
    _require_unchanged(path, curves, where=where)
    for stated, found in zip_longest(curves["runs"], curves_of_runs(path, ladder["rows"], columns=curves["columns"])):
        if stated is None or found is None or not _is_same_curve(stated, found):
            run = (stated or found)["run"]
            refuse(f"{where} has another curve of {run} than {curves['path']}", fix="Register the forecast anew.")
    return f", {len(curves['runs'])} curves to those of {curves['path']}"


def curves_of_runs(path: Path, rows: Sequence[Mapping[str, Any]], *, columns: Mapping[Any, str]) -> list[dict[str, Any]]:
    """Return the curves of these runs in a table, as in `ladder.json`; `RunTableError` if it has none of them."""
    from marin_scaling.forecast.loss_curve import losses_at_fractions
    from marin_scaling.run.curves import read_curves

    logged = read_curves(path, tokens={str(row["run"]): row["tokens"] for row in rows}, columns=columns)
    if not logged:
        raise RunTableError(
            f"{path} has the curve of none of the {len(rows)} fitted runs, such as {rows[0]['run']}.",
            why="A curve belongs to a run of the table by its name.",
            fix="Write the runs' names as in the table of runs.",
        )
    curves = {run: losses_at_fractions(curve.fractions, curve.losses).tolist() for run, curve in sorted(logged.items())}
    return [{"run": run, "losses": [None if isnan(each) else each for each in curve]} for run, curve in curves.items()]


def _is_same_curve(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    pairs = zip(one["losses"], other["losses"], strict=True)
    return one["run"] == other["run"] and all(a == b or (a and b and isclose(a, b, rel_tol=1e-9)) for a, b in pairs)


RECORDED_LOSS = "train_loss_nats_per_token"
_RATES = ("name", "warmup_fraction", "decay_fraction", "min_learning_rate_ratio")


def recorded_curves(rows: Sequence[Mapping[str, Any]], *, ladder_dir: Path, target: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the training losses of a ladder's runs, as `curves` of `ladder.json`.

    `target` is the content of `target.json`. None if its schedule is not that of all runs, or if fewer than two have a curve.
    """
    from marin_scaling.forecast.loss_curve import LEAST_CURVES

    found = []
    for row in rows:
        raw = read_plain(ladder_dir / row["run"][:16] / "spec.json")
        optimizer, steps = (load_canonical(raw, name="spec.json")[name] for name in ("optimizer", "train_steps"))
        if optimizer.get("type") or any(optimizer.get(name) != target["optimizer"].get(name) for name in _RATES):
            return None
        curve = _recorded_curve(read_plain(ladder_dir / row["run"][:16] / "history.json"), train_steps=steps)
        found += [{"run": row["run"], "losses": [*curve]}] * (sum(each is not None for each in curve) > 1)
    return {"loss": RECORDED_LOSS, "runs": found} if len(found) >= LEAST_CURVES else None


def add_recorded_curve(
    document: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    target: RunSpec,
    ladder_dir: Path,
    losses: Sequence[float],
) -> dict[str, Any] | None:
    """Add the forecast of the target's training losses to `document`; return the curves as in `ladder.json`, None without."""
    from marin_scaling.forecast.loss_curve import curve_from_ladder, curve_rows

    described = load_canonical(target.to_bytes(), name="target.json")
    curves, ladder = recorded_curves(rows, ladder_dir=ladder_dir, target=described), [ladder_row(row) for row in rows]
    if curves is not None:
        found = curve_from_ladder({"rows": ladder, "curves": curves}, size_of(described), thinned(losses))
        document["predictions"][0]["curve"] = curve_rows(found)
    return curves


@lru_cache(maxsize=256)
def _recorded_curve(history: bytes, *, train_steps: int) -> tuple[float | None, ...]:
    """Return a run's training losses at every 5 % of its steps, from the bytes of `history.json`; forecasts share runs."""
    from marin_scaling.forecast.loss_curve import marks_of_steps

    rows = load_canonical(history, name="history.json")["rows"]
    return marks_of_steps([row[RECORDED_LOSS] for row in rows], train_steps=train_steps)


def recorded_curves_step(ladder: Mapping[str, Any], *, target: Mapping[str, Any], where: str, runs_dir: Path) -> str:
    """Compare the signed curves of a ladder with its records; return what was compared, empty without curves or records."""
    ladder_dir, curves = runs_dir / ladder["ladder"], ladder.get("curves")
    if curves is None or "path" in curves or not holds_runs(ladder_dir):
        return ""
    again = recorded_curves(ladder["rows"], ladder_dir=ladder_dir, target=target) or {"runs": []}
    for stated, found in zip_longest(curves["runs"], again["runs"]):
        if stated is None or found is None or not _is_same_curve(stated, found):
            refuse(f"{where} has another curve of {(stated or found)['run']} than {ladder_dir}", fix="Register it anew.")
    return f"; {len(curves['runs'])} curves equal to those in {ladder_dir}"


def holds_runs(ladder_dir: Path) -> bool:
    """Return True if a folder of the run store has runs."""
    return ladder_dir.is_dir() and any(_RUN_NAME.fullmatch(path.name) for path in ladder_dir.iterdir())


def _require_each_once(rows: Sequence[Mapping[str, Any]], *, where: str) -> None:
    name, count = Counter(row["run"][:16] for row in rows).most_common(1)[0]
    if count > 1:
        refuse(f"{where} has the run {name} {count} times", fix="Register the forecast anew, from a table with each run once.")


def _compare_row(row: Mapping[str, Any], *, ladder_dir: Path, statement: Statement, where: str) -> None:
    folder = ladder_dir / row["run"][:16]
    if not _RUN_NAME.fullmatch(folder.name) or not (folder / "record.json").is_file():
        refuse(f"{where}: the run {row['run']} is not in {ladder_dir}", fix="Restore that run from version control.")
    spec, record, raw_spec = _read_run(folder)
    if not sha256_hex(raw_spec).startswith(row["run"]) or spec["statement_sha256"] is not None:
        refuse(f"{folder / 'spec.json'} is not the spec of the rung {row['run']}", fix="Restore that run from version control.")
    _require_same_kind(spec, statement, where=str(folder / "spec.json"))
    if parse_moment(record["finished_at"]) > statement.created_at:
        refuse(
            f"{folder} was finished at {record['finished_at']}, after the statement of "
            f"{statement.predicate['createdAt']} that rests on it",
            fix="A statement cannot be older than the runs it was made from; register the forecast anew, before its run.",
        )
    if record["params_active"] != record["params_total"] and "active_params" not in row:
        refuse(
            f"{where}: the run {row['run'][:16]} has no active_params, and is a mixture of experts",
            fix="A fit takes the active parameters of such runs; register the forecast anew, with all of the fitted table.",
        )
    trained = _trained(record) | {"budget_flops": spec["budget_flops"]}
    for column, value in trained.items():
        if column in row and value != row[column]:
            refuse(
                f"{where}: {column} of the run {row['run'][:16]} is {row[column]!r}, and its record says {value!r}",
                fix="Restore the record from version control; a forecast from other numbers must be registered anew.",
            )


def _trained(record: Mapping[str, Any]) -> dict[str, Any]:
    return {column: record.get(key) for column, key in _FITTED.items()}


def _is_record_of(row: Mapping[str, Any], raw: bytes) -> bool:
    """Return True if these bytes are a record with the values of a row of `ladder.json`."""
    try:
        record = load_canonical(raw, name="record.json")
    except DocumentError:
        return False
    return isinstance(record, dict) and all(row.get(column, value) == value for column, value in _trained(record).items())


RUN_FILES = ("spec.json", "record.json", "history.json")


def _run_tests(
    run: str, files: Mapping[str, bytes], *, is_record: Callable[[bytes], bool]
) -> dict[str, Callable[[bytes], bool]]:
    """Return, for each file of a run, the test that its content passes if the other files are right."""
    curve = sha256_hex(files["history.json"]).encode()
    named = re.search(rb'"history_sha256": "([0-9a-f]{64})"', files["record.json"])
    return {
        "spec.json": lambda content: sha256_hex(content).startswith(run),
        "record.json": lambda content: is_record(content) and (curve in content or not files["history.json"]),
        "history.json": lambda content: named is not None and sha256_hex(content).encode() == named[1],
    }


def _restoring_run(folder: Path, *, is_record: Callable[[bytes], bool]) -> str:
    """Return the command that restores the first file of a run that is not what its digest or values say; empty without one."""
    if not _RUN_NAME.fullmatch(folder.name):
        return ""
    paths = [folder / name for name in RUN_FILES]
    files = {path.name: read_plain(path) if is_present(path) else b"" for path in paths}
    tests = _run_tests(folder.name, files, is_record=is_record)
    wrong = [name for name, fits in tests.items() if not fits(files[name])]
    for name in wrong:
        if command := restoring_command(folder / name, fits=tests[name], whole=folder if len(wrong) == len(tests) else None):
            return command
    return ""


def contradicts_forecasts(run: Path, files: Mapping[str, bytes], *, forecasts: Iterable[Path]) -> bool:
    """Return True if a run with these files is not the one in the ladder or outcome of one of these forecasts."""
    known: list[Callable[[bytes], bool]] = []
    for folder in forecasts:
        with contextlib.suppress(MarinScalingError, LookupError, TypeError):  # refused where it is verified
            ladder = load_canonical(read_plain(folder / "ladder.json"), name="ladder.json")
            if ladder["ladder"] == run.parent.name:
                known += [partial(_is_record_of, row) for row in ladder["rows"] if row["run"][:16] == run.name]
                outcome = load_canonical(read_plain(folder / OUTCOME_NAME), name=OUTCOME_NAME)
                known += [partial(has_digest, digest=outcome["record_sha256"])] * (outcome["run"][:16] == run.name)
    tests = _run_tests(run.name, files, is_record=lambda content: all(fits(content) for fits in known))
    return bool(known) and not all(fits(files[name]) for name, fits in tests.items())


def _require_same_kind(spec: Mapping[str, Any], statement: Statement, *, where: str) -> None:
    """Refuse a run with another recipe, text, mix, horizon or evaluation than the target."""
    predicate = statement.predicate
    recipe = predicate["recipe"]
    promised = {
        "recipe": predicate["targetRun"]["recipe"],
        "evaluation": predicate["metric"]["protocol"],
        "data": recipe["data"],
        "mix": recipe.get("mix"),
        "horizon_tokens": recipe.get("horizonTokens"),
    }
    for key, value in promised.items():
        if spec.get(key) != value:
            refuse(
                f"{where}: the {key} of this run of the ladder is {spec.get(key)!r}, and the target's {value!r}",
                fix="Register a target of the ladder's own recipe, data and evaluation.",
            )


def require_declared(statement: Statement, subjects: Mapping[str, Any], *, where: str, runs_dir: Path) -> None:
    """Require that each recipe constant that differs between target and all rungs is a known difference.

    `subjects` are the contents of the files beside the statement. Nothing is compared without a run store.
    """
    ladder = subjects["ladder.json"]
    if not holds_runs(runs_dir / ladder["ladder"]):
        return
    rungs = [_read_run(runs_dir / ladder["ladder"] / row["run"][:16])[0] for row in ladder["rows"]]
    declared = statement.predicate["recipe"]["knownDifferencesFromLadder"]
    undeclared = undeclared_differences(
        rungs, target=subjects["target.json"], recipe=subjects["recipe.json"], declared=declared
    )
    if undeclared:
        refuse(
            f"{where}: recipe.knownDifferencesFromLadder does not name {undeclared[0]}",
            fix="Register it anew, with that difference declared: promise.known_differences in the ladder file.",
        )


def _read_run(folder: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    raw_spec, raw_record = (read_plain(folder / name) for name in ("spec.json", "record.json"))
    spec = load_canonical(raw_spec, name=str(folder / "spec.json"))
    record = load_canonical(raw_record, name=str(folder / "record.json"))
    check_document(spec, _Spec, name=str(folder / "spec.json"))
    check_document(record, _Record, name=str(folder / "record.json"))
    if sha256_hex(read_plain(folder / "history.json")) != record["history_sha256"]:
        refuse(
            f"{folder / 'history.json'} is not the loss curve that record.json names", fix="Restore it from version control."
        )
    return spec, record, raw_spec


def _check_nothing_left_out(statement: Statement, rows: Sequence[Mapping[str, Any]], *, ladder_dir: Path) -> None:
    fit = statement.predicate["fit"]
    named = {row["run"][:16] for row in rows}
    named.update(name for excluded in fit["excluded"] for name in _RUN_NAME.findall(excluded["run"]))
    for folder in sorted(path for path in ladder_dir.iterdir() if _RUN_NAME.fullmatch(path.name) and path.name not in named):
        spec, record, _ = _read_run(folder)
        if spec["role"] == "rung" and parse_moment(record["finished_at"]) <= statement.created_at:
            refuse(
                f"{folder} was finished before the forecast and is neither in its ladder nor among those left out",
                fix="A run that is left out must be listed with the reason: register the forecast anew, before its run.",
            )


def require_record(folder: Path, *, outcome: Mapping[str, Any], where: str) -> None:
    """Require the target's record in the ladder's folder, matching the outcome."""
    with restored_by(partial(_restoring_run, folder, is_record=partial(has_digest, digest=outcome["record_sha256"]))):
        if not (folder / "record.json").is_file():
            refuse(f"{where} tells an outcome, and its run {folder} is not there", fix="Restore that run from version control.")
        _, record, raw_spec = _read_run(folder)
        if sha256_hex(raw_spec) != outcome["run"]:
            refuse(f"{folder / 'spec.json'} is not the spec of the run that {where} names", fix="Restore that run.")
        found = sha256_hex(read_plain(folder / "record.json"))
        for key, expected in (("value", record["loss"]), ("record_sha256", found)):
            if outcome[key] != expected:
                refuse(
                    f"{where}: {key} is {outcome[key]!r}, and {folder / 'record.json'} says {expected!r}",
                    fix="Outcome and record are each written once; restore both from version control.",
                )


_SIZES = {"hidden_dim"}
"""Keys without a formula that are expected to differ."""


def undeclared_differences(
    rungs: Sequence[Mapping[str, Any]], *, target: Mapping[str, Any], recipe: Mapping[str, Any], declared: Sequence[str]
) -> list[str]:
    """Return undeclared differences as `name: value in the runs of the ladder, value in the target`.

    `rungs` and `target` are the contents of spec.json and target.json; `recipe` is that of recipe.json, whose formulas may
    follow the size. `declared` are the known differences; one of them must contain the name.

    >>> rung, target = ({"model": {}, "optimizer": {"z_loss_weight": each}} for each in (1e-7, 0.0))
    >>> undeclared_differences([rung], target=target, recipe={"numbers": []}, declared=["another corpus"])
    ['z_loss_weight: 1e-07 in the runs of the ladder, 0.0 in the target']
    >>> undeclared_differences([rung], target=target, recipe={"numbers": []}, declared=["no z_loss_weight"])
    []
    """
    by_formula = {number["name"] for number in recipe["numbers"] if number["formula"]}
    found = []
    for name, value in _constants(target).items():
        before = [_constants(rung).get(name) for rung in rungs]
        is_one = all(each == before[0] for each in before)
        if name not in by_formula | _SIZES and before and is_one and before[0] != value:
            found.append((name, f"{name}: {before[0]!r} in the runs of the ladder, {value!r} in the target"))
    return [said for name, said in found if not any(name in words for words in declared)]


def _constants(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec["model"], **spec["optimizer"]}
