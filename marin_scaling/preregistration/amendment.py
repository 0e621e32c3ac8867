"""Amendments: a later forecast of the same run, signed beside the first one, which keeps the headline and every count.

A ladder grows, a law gets better, a run is half done: what is forecast then is scored in a row of its own, with how much of the
run had been seen. Each is a folder `amend-N` with its statement (`amendment.json`), signature, ladder, fit and samples; target,
metric and scoring rule are the original's. Who signed it, and whether it can be scored, is for `check` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_scaling.canonical_json import load_canonical, sha256_hex
from marin_scaling.errors import VerificationError
from marin_scaling.preregistration.derivation import agrees, amended_fields, require_samples_of
from marin_scaling.preregistration.document_shape import MOMENT, SHA256, Choice, ListOf, Means, Number, Shape, Text, check_shape
from marin_scaling.preregistration.statement import Statement, parse_moment, read_subject, require_sound_forecast
from marin_scaling.preregistration.statement_format import PRINCIPAL, STATEMENT_TYPE
from marin_scaling.preregistration.version_0_2 import PREDICATE_SHAPE
from marin_scaling.preregistration.versions import VERSION_0_2

AMENDMENT_TYPE = "urn:marin-scaling:amendment:v0.1"
AMENDMENT_NAME, AMENDMENT_SIGNATURE_NAME = "amendment.json", "amendment.json.sig"
SUBJECT_NAMES = ("forecast.json", "ladder.json", "samples.json")
AMENDMENT_FILES = (AMENDMENT_NAME, AMENDMENT_SIGNATURE_NAME, *SUBJECT_NAMES)
AMENDMENT_SHAPE: dict[str, Shape] = {
    "_type": Choice(of=(STATEMENT_TYPE,)),
    "subject": ListOf(item={"name": Choice(of=SUBJECT_NAMES), "digest": {"sha256": SHA256}}),
    "predicateType": Choice(of=(AMENDMENT_TYPE,)),
    "predicate": {
        "kind": Means(value=Choice(of=("amend",)), what="a later forecast of a run that has one"),
        "supersedes": Means(value=SHA256, what="SHA-256 of the statement in the folder above"),
        "registrant": Means(value=PRINCIPAL, what="who signs: that statement's registrant"),
        "createdAt": Means(value=MOMENT, what="when it was made, by the registrant's clock (UTC)"),
        "reason": Means(
            value=Text(pattern=r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,10000}"), what="why it was made, in the registrant's words"
        ),
        "tool": PREDICATE_SHAPE["tool"],
        "knowledge": {
            "targetRunStepsSeen": Means(
                value=Number(whole=True, least=0),
                what="how many steps of the run's loss the registrant had seen, by their word; fewer than it has",
            )
        },
        "forecast": PREDICATE_SHAPE["forecast"],
        "fit": PREDICATE_SHAPE["fit"],
    },
}
_FOLDER = re.compile(r"amend-([1-9][0-9]{0,2})")
_MADE_ANEW = ("createdAt", "tool", "forecast", "fit")


@dataclass(frozen=True, kw_only=True)
class Amendment:
    """An amendment that was read: the name of its folder, what it says, and the original with its forecast instead."""

    name: str
    predicate: Mapping[str, Any]
    amended: Statement

    @property
    def steps_seen(self) -> int:
        """How many steps of the target's loss its registrant had seen, by their word."""
        return int(self.predicate["knowledge"]["targetRunStepsSeen"])


def amendment_names(names: Iterable[str]) -> list[str]:
    """The amendments among the names in a folder, in their order.

    >>> amendment_names(["statement.json", "amend-10", "amend-9"])
    ['amend-9', 'amend-10']
    """
    matches = [match for match in map(_FOLDER.fullmatch, names) if match]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def read_amendment(files: Mapping[str, bytes], *, place: Path, original: Statement, target: Mapping[str, Any]) -> Amendment:
    """The amendment in these files (name to bytes) of the folder `place`; who signed it is for `check` to say.

    `VerificationError` or `StatementError` when it is about another statement, by someone else, or its files say otherwise.
    """
    where = str(place / AMENDMENT_NAME)
    document = load_canonical(files[AMENDMENT_NAME], name=where)
    check_shape(document, AMENDMENT_SHAPE, name=where)
    predicate = document["predicate"]
    _require_about(predicate, original=original, target=target, where=where)
    _require_digests(document["subject"], files, where=where)
    subjects = {name: read_subject(files[name], name=name, path=str(place / name)) for name in SUBJECT_NAMES}
    view = {**original.predicate, **{key: predicate[key] for key in _MADE_ANEW}}
    amended = Statement(raw=files[AMENDMENT_NAME], document={**document, "predicate": view}, version=VERSION_0_2)
    require_sound_forecast(amended)
    for part, fields in amended_fields({**subjects, "target.json": target}).items():
        for key, value in fields.items():
            if not agrees(value, predicate[part][key]):
                _refuse(where, f"{part}.{key} is {predicate[part][key]!r}, and its files say {value!r}")
    require_samples_of(subjects["samples.json"]["losses"], amended.quantiles)
    return Amendment(name=place.name, predicate=predicate, amended=amended)


def _require_about(predicate: Mapping[str, Any], *, original: Statement, target: Mapping[str, Any], where: str) -> None:
    if predicate["supersedes"] != original.sha256:
        _refuse(where, "it amends another statement")
    if predicate["registrant"] != original.predicate["registrant"]:
        _refuse(where, f"{predicate['registrant']} amends what {original.predicate['registrant']} promised")
    if parse_moment(predicate["createdAt"]) <= original.created_at:
        _refuse(where, f"it was made at {predicate['createdAt']}, not after the statement that it amends")
    seen = predicate["knowledge"]["targetRunStepsSeen"]
    if seen >= target["train_steps"]:
        _refuse(where, f"{seen} steps of the target had been seen, and it has {target['train_steps']}")


def _require_digests(subjects: Sequence[Mapping[str, Any]], files: Mapping[str, bytes], *, where: str) -> None:
    promised = {subject["name"]: subject["digest"]["sha256"] for subject in subjects}
    if tuple(sorted(promised)) != SUBJECT_NAMES or len(subjects) != len(SUBJECT_NAMES):
        _refuse(where, f"its files are {sorted(promised)}, not {list(SUBJECT_NAMES)}")
    for name, digest in promised.items():
        if sha256_hex(files[name]) != digest:
            _refuse(where, f"{name} has the digest {sha256_hex(files[name])}, and it promises {digest}")


def _refuse(where: str, reason: str) -> None:
    raise VerificationError(
        f"{where}: {reason}.",
        why="A later forecast stands beside the first one only where it is its author's, about the same run, before its end.",
        fix="Restore it from version control, or make another: marin-scale amend",
    )
