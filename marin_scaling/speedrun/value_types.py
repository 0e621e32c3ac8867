"""What may stand in the values of files that strangers send: texts without signs that nobody sees, links, names, amounts.

Kinds for pydantic models; what a file means is in its model.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from marin_scaling.text_patterns import PATTERNS
from marin_scaling.web_links import can_be_read

_SHA256, _COMMIT, _LINE, _WORDS, LINK_PATTERN, _NAME = PATTERNS
SHA256 = Annotated[str, StringConstraints(pattern=_SHA256)]
Commit = Annotated[str, StringConstraints(pattern=_COMMIT)]


def _readable(address: str) -> str:
    if not can_be_read(address):
        raise ValueError("it is no address that can be taken apart")
    return address


Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=_LINE)]
Words = Annotated[str, StringConstraints(max_length=10_000, pattern=_WORDS)]
Link = Annotated[str, StringConstraints(max_length=2000, pattern=LINK_PATTERN), AfterValidator(_readable)]
Name = Annotated[str, StringConstraints(max_length=200, pattern=_NAME)]
Count = Annotated[int, Field(gt=0, le=10**30)]
Amount = Annotated[float, Field(gt=0, le=1e60)]  # products of a few stay numbers
