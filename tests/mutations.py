"""Changes of bytes and documents that a verifier must not overlook, drawn by a `random.Random`, so that a seed repeats them.

What a change means, and whether it may be accepted, is not known here: that is `mutated_registry`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from marin_scaling.canonical_json import dump_canonical
from marin_scaling.errors import DocumentError

LOOK_ALIKES = dict(zip("aceopxyAEO0123456789-.@", "асеорхуАЕО０１٢３４５６７８９‐．＠", strict=True))
NUMERALS = (
    *(b"NaN", b"-Infinity", b"1e400", b"-0", b"01", b"0x1", b"1_0", b".5", b"1.50", b"5E-1", b"true", b"1" + b"0" * 5000),
    *(b"[" * depth + b"]" * depth for depth in (50, 500, 900, 5000)),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, 5e-324, 1e-300, 2**63, 2**64 + 1, 10**30, 10**400, float("nan")),
    *("", " ", "0.5", "nan", "\u202e", "\x00", "a\nb", "\ud800", "A" * 20_000, "9999-99-99T99:99:99Z", "0" * 64, "../x", "*"),
    *([], {}, [1], {"a": 1}, [[[]]]),
)
_DEEP = 100  # as deep as Python's own writer of JSON goes; raw bytes go deeper
_DEEPER = 100_000
_MANY = 2000


def mutated_bytes(raw: bytes, rng: Random) -> tuple[str, bytes]:
    """One to three changes of bytes; the name is that of the last."""
    name = "nothing"
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(BYTE_CHANGES))
        raw = BYTE_CHANGES[name](raw, rng)
    return f"bytes: {name}", raw


def mutated_document(document: Any, rng: Random) -> tuple[str, Any]:
    """One to three changes of values, keys and lists; the name is that of the last. Multiplied is once at most: what is
    multiplied three times takes more memory to write than there is."""
    document, name, possible = copy.deepcopy(document), "nothing", sorted(DOCUMENT_CHANGES)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(possible)
        possible = [each for each in possible if name != "multiply" or each != name]
        if places := list(_places(document)):
            holder, key = rng.choice(places)
            DOCUMENT_CHANGES[name](holder, key, rng)
    return f"structure: {name}", document


def written(document: Any) -> bytes:
    """The canonical bytes of a document; where it has none (NaN), the bytes that Python's own writer makes."""
    try:
        return dump_canonical(document)
    except DocumentError:
        return json.dumps(document, indent=1, sort_keys=True).encode("utf-8", "surrogatepass") + b"\n"


def look_alike(text: str, rng: Random) -> str:
    """One sign replaced by another that looks like it; a text without any gets one that is not seen at all."""
    places = [place for place, sign in enumerate(text) if sign in LOOK_ALIKES]
    if not places:
        return text + "\u200b"
    place = rng.choice(places)
    return text[:place] + LOOK_ALIKES[text[place]] + text[place + 1 :]


def _span(raw: bytes, rng: Random, *, longest: int = 40) -> tuple[int, int]:
    start = rng.randint(0, len(raw))
    return start, min(len(raw), start + rng.randint(0, longest))


def _flip(raw: bytes, rng: Random) -> bytes:
    if not raw:
        return b"\x00"
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << rng.randrange(8))]) + raw[place + 1 :]


def _delete(raw: bytes, rng: Random) -> bytes:
    start, end = _span(raw, rng)
    return raw[:start] + raw[end:]


def _insert(raw: bytes, rng: Random) -> bytes:
    start, _ = _span(raw, rng)
    return raw[:start] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 8))) + raw[start:]


def _duplicate(raw: bytes, rng: Random) -> bytes:
    start, end = _span(raw, rng, longest=2000)
    return raw[:end] + raw[start:end] * rng.choice((1, 1, 2, 50)) + raw[end:]


def _move(raw: bytes, rng: Random) -> bytes:
    start, end = _span(raw, rng)
    rest = raw[:start] + raw[end:]
    place, _ = _span(rest, rng)
    return rest[:place] + raw[start:end] + rest[place:]


def _swap_lines(raw: bytes, rng: Random) -> bytes:
    lines = raw.split(b"\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def _repeat_line(raw: bytes, rng: Random) -> bytes:
    lines = raw.split(b"\n")
    place = rng.randrange(len(lines))
    return b"\n".join([*lines[:place], lines[place], *lines[place:]])


def _encode(raw: bytes, rng: Random) -> bytes:
    text = raw.decode("latin-1")
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: b"\xef\xbb\xbf" + raw,
        lambda: text.encode("utf-16"),
        lambda: raw.replace(b"\n", b"\r\n"),
        lambda: raw.removesuffix(b"\n"),
        lambda: raw + rng.choice((b"\n", b" ", b"\x00", b"{}", b"\x1a")),
        lambda: raw.replace(b" ", b"\t"),
        lambda: b"",
    )
    return rng.choice(ways)()


def _look_alike_bytes(raw: bytes, rng: Random) -> bytes:
    start, end = _span(raw, rng)
    found = look_alike(raw[start:end].decode("latin-1"), rng)
    as_escapes = rng.random() < 0.5
    changed = found.encode("ascii", "backslashreplace").replace(b"\\x", b"\\u00") if as_escapes else found.encode("utf-8")
    return raw[:start] + changed + raw[end:]


def _escape(raw: bytes, rng: Random) -> bytes:
    """A sign written as JSON's escape of it: the same document in other bytes."""
    place = rng.randrange(len(raw) or 1)
    return raw[:place] + b"".join(b"\\u%04x" % sign for sign in raw[place : place + 1]) + raw[place + 1 :]


def _numeral(raw: bytes, rng: Random) -> bytes:
    """A number written as another, or as none."""
    found = [match.span() for match in re.finditer(rb"-?\d[\d.e+-]*", raw)] or [(0, 0)]
    start, end = rng.choice(found)
    return raw[:start] + rng.choice((*NUMERALS, raw[start:end] + b"0", raw[start:end] + b".0")) + raw[end:]


def _nest(raw: bytes, rng: Random) -> bytes:
    start, end = _span(raw, rng)
    return raw[:start] + rng.choice((b"[", b'{"a":')) * rng.choice((1, 100, _DEEPER)) + raw[end:]


BYTE_CHANGES: dict[str, Callable[[bytes, Random], bytes]] = {
    "flip": _flip,
    "delete": _delete,
    "insert": _insert,
    "duplicate": _duplicate,
    "move": _move,
    "swap lines": _swap_lines,
    "repeat a line": _repeat_line,
    "encode": _encode,
    "look-alike": _look_alike_bytes,
    "escape": _escape,
    "numeral": _numeral,
    "nest": _nest,
}


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a document: what holds it, and its key there; of long lists the first and the last."""
    if isinstance(document, dict):
        keys: list[Any] = list(document)
    elif isinstance(document, list):
        keys = [*range(min(len(document), 3)), *range(max(3, len(document) - 1), len(document))]
    else:
        keys = []
    for key in keys:
        yield document, key
        yield from _places(document[key])


def _replace(holder: Any, key: Any, rng: Random) -> None:
    holder[key] = copy.deepcopy(rng.choice(VALUES))


def _retype(holder: Any, key: Any, rng: Random) -> None:
    """The same value as another kind of JSON."""
    value = holder[key]
    ways: list[Any] = [str(value)[:200], [value], {"value": value}, bool(value)]
    if isinstance(value, int | float) and value == value and abs(value) < 1e300:
        ways += [float(value), int(value)]
    holder[key] = rng.choice(ways)


def _nudge(holder: Any, key: Any, rng: Random) -> None:
    """A number moved, from its last digits to its sign; a text moved by a sign."""
    value = holder[key]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
        by = rng.choice((1e-15, 1e-12, 1e-10, 1e-8, 1e-6, 1e-3, 1.0, -2.0))
        holder[key] = rng.choice((value * (1 + by), value + by, value + 1, value - 1))
    elif isinstance(value, str):
        holder[key] = rng.choice((value + rng.choice("x 0Z"), value[:-1], value.upper(), value.swapcase(), value[::-1]))


def _remove(holder: Any, key: Any, rng: Random) -> None:
    del holder[key]


def _add(holder: Any, key: Any, rng: Random) -> None:
    value = copy.deepcopy(rng.choice((holder[key], *VALUES)))
    if isinstance(holder, list):
        holder.insert(rng.choice((0, key, len(holder))), value)
    else:
        names = ("new", "", "epochs", "active_params", "fixed", "evidence", f"{key} ", look_alike(str(key), rng))
        holder[rng.choice(names)] = value


def _rename(holder: Any, key: Any, rng: Random) -> None:
    """A key written in another way, also one that reads as the same number."""
    if isinstance(holder, dict):
        ways = (look_alike(key, rng), key + "0", key.removeprefix("0"), f" {key}", f"+{key}", key.upper(), key.swapcase())
        holder[rng.choice(ways)] = holder.pop(key) if rng.random() < 0.5 else copy.deepcopy(holder[key])


def _look_alike_text(holder: Any, key: Any, rng: Random) -> None:
    if isinstance(holder[key], str):
        holder[key] = look_alike(holder[key], rng)


def _exchange(holder: Any, key: Any, rng: Random) -> None:
    """Two neighbours change places."""
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    other = rng.choice(keys)
    holder[key], holder[other] = holder[other], holder[key]


def _deepen(holder: Any, key: Any, rng: Random) -> None:
    for _ in range(rng.choice((1, 10, _DEEP))):
        holder[key] = [holder[key]]


def _multiply(holder: Any, key: Any, rng: Random) -> None:
    """Far more of what stands there than anyone wants."""
    value = holder[key]
    if isinstance(value, list):
        holder[key] = value * rng.choice((2, max(2, _MANY // (len(value) or 1))))
    elif isinstance(value, dict):
        holder[key] = value | {f"{name}{number}": value[name] for number in range(_MANY) for name in list(value)[:1]}
    elif isinstance(value, str) and len(value) < 100:
        holder[key] = value * rng.choice((2, _MANY))


DOCUMENT_CHANGES: dict[str, Callable[[Any, Any, Random], None]] = {
    "replace": _replace,
    "retype": _retype,
    "nudge": _nudge,
    "remove": _remove,
    "add": _add,
    "rename": _rename,
    "look-alike": _look_alike_text,
    "exchange": _exchange,
    "deepen": _deepen,
    "multiply": _multiply,
}
