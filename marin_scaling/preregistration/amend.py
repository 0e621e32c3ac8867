"""Make an amendment: statement, signature, folder, in that order; refuse what could not be checked later. Fits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import dump_canonical, load_canonical, sha256_hex
from marin_scaling.durable_files import publish_folder, read_bytes
from marin_scaling.errors import SigningError, VerificationError
from marin_scaling.preregistration.allowed_signers import require_may_sign
from marin_scaling.preregistration.amendment import (
    AMENDMENT_NAME,
    AMENDMENT_SIGNATURE_NAME,
    AMENDMENT_TYPE,
    SUBJECT_NAMES,
    amendment_names,
    read_amendment,
)
from marin_scaling.preregistration.derivation import amended_fields
from marin_scaling.preregistration.notice import require_not_ended
from marin_scaling.preregistration.preregister import ladder_document, thinned, usual_ladder_rule
from marin_scaling.preregistration.registry import OUTCOME_NAME, read_registration, signers_path
from marin_scaling.preregistration.signing_key import SigningKey
from marin_scaling.preregistration.sshsig import NAMESPACE
from marin_scaling.preregistration.statement import Statement, moment_text, read_subject
from marin_scaling.preregistration.statement_format import STATEMENT_TYPE
from marin_scaling.preregistration.tool_source import tool_document
from marin_scaling.regular_files import is_present


def amend(
    folder: Path,
    *,
    rows: Sequence[Mapping[str, Any]],
    forecast: Mapping[str, Any],
    losses: Sequence[float],
    key: SigningKey,
    principal: str,
    at: datetime,
    reason: str,
    steps_seen: int,
) -> Path:
    """Write a signed amendment beside the statement in `folder`; returns its folder.

    `rows`, `forecast` and `losses` as in `Evidence`. `SigningError` when it comes too late or by someone else than the
    registrant, `StatementError` when the files carry no forecast of that target.
    """
    require_open(folder)
    original, path = read_registration(folder), folder / "target.json"
    target = read_subject(read_bytes(path), name=path.name, path=str(path), version=original.version)
    documents = _documents(rows, forecast, losses, original=original)
    files = {name: dump_canonical(document) for name, document in documents.items()}
    said = {
        "kind": "amend",
        "supersedes": original.sha256,
        "registrant": principal,
        "createdAt": moment_text(at),
        "reason": reason,
        "knowledge": {"targetRunStepsSeen": steps_seen},
    }
    raw = _statement(said, {**documents, "target.json": target}, files=files)
    earlier = amendment_names(each.name for each in folder.iterdir())
    _require_another(files["forecast.json"], standing=folder / earlier[-1] if earlier else folder)
    if earlier:
        _require_no_fewer_seen(steps_seen, standing=folder / earlier[-1])
    place = folder / f"amend-{len(earlier) + 1}"
    try:
        read_amendment({**files, AMENDMENT_NAME: raw}, place=place, original=original, target=target)
    except VerificationError as error:
        raise SigningError(
            error.what,
            why=error.why,
            fix="Nothing was written. Only its registrant forecasts it again (--as NAME --key KEY), before the run has ended.",
        ) from error
    require_may_sign(signers_path(folder), principal=principal, key=key.public_key, namespace=NAMESPACE, at=at)
    publish_folder(place, {**files, AMENDMENT_NAME: raw, AMENDMENT_SIGNATURE_NAME: key.sign(raw)})
    return place


def require_open(folder: Path) -> None:
    """`SigningError` when the forecast in `folder` has its outcome, was taken back, or was found void."""
    require_not_ended(folder)
    if is_present(folder / OUTCOME_NAME):
        raise SigningError(
            f"{folder} has its outcome.", why="What is known cannot be forecast.", fix="Register a forecast of the next run."
        )


def _require_another(forecast: bytes, *, standing: Path) -> None:
    """`SigningError` where nothing has changed since the forecast that stands."""
    if read_bytes(standing / "forecast.json") == forecast:
        raise SigningError(
            f"It would say what {standing} says, number for number.",
            why="A later forecast is worth a line of its own when something has changed: runs, or the tool.",
            fix="Train more rungs first (budgets in the ladder's file), or leave the first one as it is.",
        )


def _require_no_fewer_seen(steps_seen: int, *, standing: Path) -> None:
    """`SigningError` where less is said to be seen of the run than the amendment said that stands."""
    path = standing / AMENDMENT_NAME
    then = load_canonical(read_bytes(path), name=str(path))["predicate"]["knowledge"]["targetRunStepsSeen"]
    if steps_seen < then:
        raise SigningError(
            f"--steps-seen {steps_seen}: {standing.name} says that {then} had been seen.",
            why="What was seen stays seen.",
            fix=f"Say how many steps you have seen by now, at least {then}.",
        )


def _documents(
    rows: Sequence[Mapping[str, Any]], forecast: Mapping[str, Any], losses: Sequence[float], *, original: Statement
) -> dict[str, Any]:
    run, metric = original.predicate["targetRun"], forecast["metric"]
    samples = {"format_version": 1, "metric": metric, "flops": run["flops"], "losses": thinned(losses)}
    ladder = ladder_document(rows, ladder=run["ladder"], metric=metric)
    return {"forecast.json": dict(forecast), "ladder.json": ladder, "samples.json": samples}


def _statement(said: Mapping[str, Any], documents: Mapping[str, Any], *, files: Mapping[str, bytes]) -> bytes:
    fields = amended_fields(documents)
    fields["fit"]["ladderRule"] = usual_ladder_rule(documents["ladder.json"]["ladder"])
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in SUBJECT_NAMES],
        "predicateType": AMENDMENT_TYPE,
        "predicate": {**said, "tool": tool_document(), **fields},
    }
    return dump_canonical(statement)
