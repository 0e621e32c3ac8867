"""Small forgeries of a statement: signed and logged anew by its registrant, each of one field."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forgery import BOB, refused, said_by, sign_again
from registration_factory import PRINCIPAL

FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "half of the tokens are enough": (
        lambda said: said["targetRun"]["tolerance"].update(tokens=0.5),
        "tolerance.tokens: ",
    ),
    "any FLOPs are enough": (lambda said: said["targetRun"]["tolerance"].update(flops=1e308), "tolerance.flops: "),
    "a name of zeros": (lambda said: said["targetRun"].update(uid="0" * 32), "is not random"),
    "a name of two digits": (lambda said: said["targetRun"].update(uid="01" * 16), "is not random"),
    "a reviewer asked twice": (lambda said: said.update(reviewers=[BOB, BOB]), "is asked twice"),
    "a reviewer asked twice, once in capitals": (
        lambda said: said.update(reviewers=[BOB, BOB.capitalize()]),
        "is asked twice",
    ),
    "the registrant as reviewer": (lambda said: said.update(reviewers=[PRINCIPAL]), "is one of its reviewers"),
    "due in the year 9999": (lambda said: said["resolution"].update(due="9999-12-31T23:59:59Z"), "allows 1464 days"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_small_forgery_is_refused(root: Path, folder: Path, name: str) -> None:
    """By verify, and so by check."""
    change, reason = FORGERIES[name]
    sign_again(folder, change)
    refused(root, reason)
    assert said_by("check", root)[0] == 1
