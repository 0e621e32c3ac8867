"""What may stand in the values of files that strangers send: texts without signs that nobody sees, links, names, amounts.

Kinds for pydantic models; what a file means is in its model.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from marin_scaling.web_links import can_be_read

PATTERNS = {
    r"^[0-9a-f]{64}$": "a SHA-256 digest, 64 hexadecimal digits",
    r"^[0-9a-f]{40}$": "a commit, 40 hexadecimal digits",
    r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]*$": "one line of text that can be seen",
    r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]*$": "text that can be seen",
    r"^https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+$": "an address that begins with http:// or https://, of RFC 3986's signs",
    r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$": "a name of letters, digits and ._+-, its parts apart by /",
}
"""What may stand in a text, and what that is called."""

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
