"""Which texts may stand where in files that people send, and what such a text is called when another stands there."""

from __future__ import annotations

PATTERNS = {
    r"^[0-9a-f]{64}$": "a SHA-256 digest, 64 hexadecimal digits",
    r"^[0-9a-f]{40}$": "a commit, 40 hexadecimal digits",
    r"^[^\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]*$": "one line of text that can be seen",
    r"^[^\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]*$": "text that can be seen",
    r"^https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+$": "an address that begins with http:// or https://, of RFC 3986's signs",
    r"^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$": "a name of letters, digits and ._+-, its parts apart by /",
}
"""Regular expression to words; their order is that in which `value_types` names them."""
