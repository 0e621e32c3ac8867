"""Later forecasts of a registered run, signed and logged: ground for tests of amendments, and what a forger makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fitted_registration import fitted
from registration_factory import CREATED_AT, PRINCIPAL, forecast_document, losses_of, signing_key

from marin_scaling.canonical_json import dump_canonical, sha256_hex
from marin_scaling.preregistration.events.amendment import amend
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.signing.keys import SigningKey
from marin_scaling.preregistration.signing.sshsig import make_signature

LATER = CREATED_AT + timedelta(hours=1)


def lower(folder: Path, *, by: float = 0.05) -> dict[str, Any]:
    """A forecast of so much less, from the same runs: arguments of `make_amendment`."""
    document = forecast_document()
    (prediction,) = document["predictions"]
    prediction["quantiles"] = {level: value - by for level, value in prediction["quantiles"].items()}
    prediction["median"] -= by
    rows = json.loads((folder / "ladder.json").read_bytes())["rows"]
    return {"rows": rows, "forecast": document, "losses": losses_of(document)}


def make_amendment(folder: Path, *, at: datetime = LATER, logged: datetime | None = None, **changes: Any) -> Path:
    """An amendment, logged; from another ladder of the same name where nothing else is said. `changes` are for `amend`."""
    rows, document, losses = fitted(seed=1) if "rows" not in changes else (None, None, None)
    arguments: dict[str, Any] = {
        "rows": rows,
        "forecast": document,
        "losses": losses,
        "key": signing_key(),
        "principal": PRINCIPAL,
        "at": at,
        "reason": "two more budgets were trained",
        "steps_seen": 0,
    }
    place = amend(folder, **{**arguments, **changes})
    write_down(folder.parent, at=logged or at)
    return place


def sign_again(
    place: Path, change: Callable[[dict[str, Any]], Any] = lambda said: None, *, key: SigningKey | None = None
) -> None:
    """Change what an amendment says, put the digests of its files right, and sign it well; the log is left as it was."""
    document = json.loads((place / "amendment.json").read_bytes())
    for subject in document["subject"]:
        subject["digest"]["sha256"] = sha256_hex((place / subject["name"]).read_bytes())
    change(document["predicate"])
    raw = dump_canonical(document)
    (place / "amendment.json").write_bytes(raw)
    (place / "amendment.json.sig").write_bytes(make_signature(raw, private_key=(key or signing_key()).private_key))
