"""Mutated registrations: real signed ones, one input at a time with something changed in them.

Each input is one file of a registry, changed as `mutations` draws it, and signed again where its kind says so: with the keys
that the registry allows, as an author who cheats would. An input whose bytes are the old ones is none. What the verifier
makes of them is seen in `judged`.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from amendment_factory import lower, make_amendment
from cryptography.hazmat.primitives.asymmetric import ed25519
from mutations import mutated_bytes, mutated_document, written
from registration_factory import (
    CREATED_AT,
    DUE,
    PRINCIPAL,
    make_registration,
    make_second_registration,
    signing_key,
    store_run,
)
from time_authority import answer, make_authority

from marin_scaling.canonical_json import sha256_hex
from marin_scaling.ladder.config import Assumption, Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.events.seal import can_read_stamps, reveal
from marin_scaling.preregistration.format import SUBJECT_FILES
from marin_scaling.preregistration.layout import SUBJECT_NAMES
from marin_scaling.preregistration.log import FIRST_PREVIOUS, write_down
from marin_scaling.preregistration.register import countersign
from marin_scaling.preregistration.registry import allow_signer, registration_id, signers_path
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, make_signature, ssh_string, take_string
from marin_scaling.preregistration.verdict import check_preregistration

BOB, CAROL = "bob@example.org", "carol@example.org"
STRANGER, BOBS, CAROLS = (ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (9, 7, 5))
KEYS = {PRINCIPAL: signing_key(), BOB: signing_key(BOBS), CAROL: signing_key(CAROLS)}
SIGNATURES = {"statement.json.sig": PRINCIPAL, f"statement.json.{BOB}.sig": BOB}
NOTICES = {"notice-1-void": CAROL, "notice-2-deviate": PRINCIPAL, "notice-3-withdraw": PRINCIPAL}
MAX_INPUT_BYTES = 1024 * 1024
"""Of one file: reading takes time in proportion, and what the product refuses unread has 64 times as many."""
SEALED = ("sealed", "opened")
REVEAL_BY = CREATED_AT + timedelta(days=100)
LATER = CREATED_AT + timedelta(days=2)
"""When the notices were given and the outcome was written."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Registries below `root`, by what became of their forecast: promised, amended, sealed, opened, settled; and a stamp."""

    root: Path
    authority: Path | None

    def folder(self, name: str) -> Path:
        """The preregistration that inputs are about."""
        return self.root / name / "preregistrations" / registration_id("tiny-target", created_at=CREATED_AT)


@dataclass(frozen=True, kw_only=True)
class Input:
    """Files to put in the place of those of a ground (path below its root to bytes), and the one that was changed."""

    kind: str
    how: str
    changed: Path
    before: bytes
    files: Mapping[Path, bytes]


def make_ground(root: Path) -> Ground:
    """All registries, signed and reviewed; the last with notices, outcome, and another forecast beside it."""
    said = (
        Assumption(text="the recipe holds there", if_false="the interval is too narrow"),
        Assumption(text="b", if_false="c"),
    )
    promise = Promise(due=DUE, resolver=CAROL, void_if=("the text is gone",), reviewers=(BOB,), assumptions=said)
    for name in ("promised", "amended", "sealed", "opened", "settled"):
        registration = make_registration(root / name, promise=promise, reveal_by=REVEAL_BY if name in SEALED else None)
        folder = registration.folder
        for principal, key in KEYS.items():
            allow_signer(folder.parent, principal=principal, key=key.public_key, at=CREATED_AT)
        if name == "opened":
            reveal(folder)
        if name != "sealed":
            countersign(folder, key=KEYS[BOB], principal=BOB)
        if name == "amended":
            make_amendment(folder, **lower(folder, by=0.01))
        write_down(folder.parent, at=LATER)
    _settle(folder, registration.target)
    write_down(folder.parent, at=LATER)
    can_stamp = can_read_stamps() and shutil.which("openssl") is not None
    return Ground(root=root, authority=_stamped(root / "authority", folder) if can_stamp else None)


def _settle(folder: Path, target: Any) -> None:
    runs = folder.parent.parent / "runs"
    store_run(runs, spec=target, loss=2.5, day="2026-11-21")
    check_preregistration(folder, runs_dir=runs, allowed_signers=signers_path(folder), checked_at=LATER)
    make_second_registration(folder.parent.parent)
    given: tuple[tuple[Any, dict[str, Any]], ...] = (
        ("void", {"condition": "the text is gone", "evidence": "the archive"}),
        ("deviate", {"from_step": 3}),
        ("withdraw", {"target_steps_seen": 5}),
    )
    for (kind, more), by in zip(given, NOTICES.values(), strict=True):
        give_notice(folder, kind, key=KEYS[by], principal=by, at=LATER, reason="so it was", **more)


def _stamped(authority: Path, folder: Path) -> Path:
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    make_authority(authority)
    asked = TimestampRequestBuilder().data((folder / "statement.json.sig").read_bytes()).hash_algorithm(HashAlgorithm.SHA512)
    (authority / "stamp.tsr").write_bytes(answer(authority, asked.cert_request(cert_request=True).build().as_bytes()))
    return authority


def draw(ground: Ground, kind: str, rng: Random) -> Input | None:
    """One input of a kind; None where its bytes are the old ones, or too many to be read in a blink."""
    drawn = replace(KINDS[kind](ground, rng), kind=kind)
    is_new = any(path.read_bytes() != content for path, content in drawn.files.items())
    return drawn if is_new and max(map(len, drawn.files.values())) <= MAX_INPUT_BYTES else None


def _changed(path: Path, how: str, content: bytes, **more: bytes) -> Input:
    files = {path: content, **{path.parent / name: raw for name, raw in more.items()}}
    return Input(kind="", how=how, changed=path, before=path.read_bytes(), files=files)


def _any_change(path: Path, rng: Random) -> tuple[str, bytes]:
    """Of a JSON file: three times of four its content, else its bytes."""
    raw = path.read_bytes()
    if rng.random() < 0.25:
        return mutated_bytes(raw, rng)
    how, document = mutated_document(json.loads(raw), rng)
    return how, written(document)


def _signed(statement: bytes) -> dict[str, bytes]:
    return {name: make_signature(statement, private_key=KEYS[by].private_key) for name, by in SIGNATURES.items()}


def _unsigned_statement(ground: Ground, rng: Random) -> Input:
    path = ground.folder("promised") / "statement.json"
    return _changed(path, *_any_change(path, rng))


def _signed_statement(ground: Ground, rng: Random) -> Input:
    path = ground.folder("promised") / "statement.json"
    how, raw = _any_change(path, rng)
    return _changed(path, how, raw, **_signed(raw))


def _signed_subject(ground: Ground, rng: Random) -> Input:
    path = ground.folder("promised") / rng.choice(SUBJECT_FILES)
    how, raw = _any_change(path, rng)
    statement = json.loads((path.parent / "statement.json").read_bytes())
    for subject in statement["subject"]:
        if subject["name"] == path.name:
            subject["digest"]["sha256"] = sha256_hex(raw)
    promised = written(statement)
    return _changed(path, how, raw, **{"statement.json": promised, **_signed(promised)})


def _signature(ground: Ground, rng: Random) -> Input:
    path = ground.folder("promised") / rng.choice(sorted(SIGNATURES))
    how, raw = _signature_change(path, rng)
    return _changed(path, how, raw)


def _signature_change(path: Path, rng: Random) -> tuple[str, bytes]:
    raw, content = path.read_bytes(), path.with_name("statement.json").read_bytes()
    blob = base64.b64decode(raw.split(b"-----")[2])
    if (kind := rng.random()) < 0.3:
        return mutated_bytes(raw, rng)
    if kind < 0.6:
        how, changed = mutated_bytes(blob, rng)
        return f"{how} of the blob", _armored(changed)
    if kind < 0.95:
        return "fields of the blob", _armored(_other_fields(blob, rng))
    namespace = rng.choice((NAMESPACE, "git", "file", NAMESPACE.upper()))
    return "signed by a stranger, or for another purpose", make_signature(content, private_key=STRANGER, namespace=namespace)


def _other_fields(blob: bytes, rng: Random) -> bytes:
    """One field of a signature changed, with its length put right or wrong; fields exchanged, repeated, left out."""
    head, rest, fields = blob[:10], blob[10:], []
    while rest:
        field, rest = take_string(rest)
        fields.append(field)
    place = rng.randrange(len(fields))
    kind = rng.randrange(5)
    if kind == 0:
        fields[place] = mutated_bytes(fields[place], rng)[1][:20_000]
    elif kind == 1:
        fields.insert(place, rng.choice(fields))
    elif kind == 2:
        del fields[place]
    elif kind == 3:
        other = rng.randrange(len(fields))
        fields[place], fields[other] = fields[other], fields[place]
    packed = [ssh_string(field) for field in fields]
    if kind == 4:
        length = rng.choice((0, 1, len(fields[place]) + rng.choice((-1, 1)), 2**31, 2**32 - 1))
        packed[place] = max(length, 0).to_bytes(4, "big") + fields[place]
    return head + b"".join(packed)


def _armored(blob: bytes) -> bytes:
    encoded = base64.b64encode(blob[:50_000]).decode()
    lines = "".join(f"{encoded[at : at + 70]}\n" for at in range(0, len(encoded), 70))
    return f"-----BEGIN SSH SIGNATURE-----\n{lines}-----END SSH SIGNATURE-----\n".encode()


def _signers(ground: Ground, rng: Random) -> Input:
    path = signers_path(ground.folder("promised"))
    raw = path.read_bytes()
    options = (
        b'valid-after="20261101Z"',
        b'valid-before="20261101Z"',
        b"cert-authority",
        'valid-before="２０２７٠١٠١Z"'.encode(),
    )
    options += (
        b'namespaces="*"',
        b'namespaces="!preregistration@*,*"',
        b'valid-after="20261120083000Z",valid-before=20270101Z',
    )
    if rng.random() < 0.3:
        lines = raw.split(b"\n")
        place = rng.randrange(len(lines) - 1)
        who, _, rest = lines[place].partition(b" ")
        rest = rest.partition(b" ")[2] if rng.random() < 0.5 else rest
        who = rng.choice((who, who, b"*", b"*@example.org", b"!" + who, who + b",!*", b'"' + who + b'"', b"?" * len(who)))
        lines[place] = b" ".join([who, rng.choice(options), rest])
        return _changed(path, "options", b"\n".join(lines))
    return _changed(path, *mutated_bytes(raw, rng))


def _log(ground: Ground, rng: Random) -> Input:
    path = ground.folder("settled").parent / "log.jsonl"
    return _changed(path, *mutated_bytes(path.read_bytes(), rng))


def _chained_log(ground: Ground, rng: Random) -> Input:
    """The content of lines changed, and numbers and chain put right again."""
    path = ground.folder("settled").parent / "log.jsonl"
    how, documents = mutated_document([json.loads(line) for line in path.read_bytes().splitlines()], rng)
    lines: list[bytes] = []
    for number, document in enumerate(documents):
        link = {"seq": number, "prev": sha256_hex(lines[-1]) if lines else FIRST_PREVIOUS}
        whole = document | {key: link[key] for key in link if key in document} if isinstance(document, dict) else document
        lines.append(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode())
    return _changed(path, how, b"".join(line + b"\n" for line in lines))


def _outcome(ground: Ground, rng: Random) -> Input:
    path = ground.folder("settled") / "outcome.json"
    return _changed(path, *_any_change(path, rng))


def _notice(ground: Ground, rng: Random) -> Input:
    place = ground.folder("settled") / rng.choice(sorted(NOTICES))
    if rng.random() < 0.2:
        path = place / "notice.json.sig"
        return _changed(path, *mutated_bytes(path.read_bytes(), rng))
    path = place / "notice.json"
    how, raw = _any_change(path, rng)
    if rng.random() < 0.2:
        return _changed(path, f"{how}, not signed again", raw)
    return _changed(
        path, how, raw, **{"notice.json.sig": make_signature(raw, private_key=KEYS[NOTICES[place.name]].private_key)}
    )


def _amendment(ground: Ground, rng: Random) -> Input:
    return _signed_document(ground.folder("amended") / "amend-1" / "amendment.json", rng)


def _signed_document(path: Path, rng: Random) -> Input:
    """What a document of its registrant says, signed again or not; or its signature alone."""
    signature = path.with_name(f"{path.name}.sig")
    if (kind := rng.random()) < 0.2:
        return _changed(signature, *mutated_bytes(signature.read_bytes(), rng))
    how, raw = _any_change(path, rng)
    if kind < 0.4:
        return _changed(path, f"{how}, not signed again", raw)
    return _changed(path, how, raw, **{signature.name: make_signature(raw, private_key=KEYS[PRINCIPAL].private_key)})


def _amended_subject(ground: Ground, rng: Random) -> Input:
    path = ground.folder("amended") / "amend-1" / rng.choice(SUBJECT_NAMES)
    how, raw = _any_change(path, rng)
    amendment = json.loads((path.parent / "amendment.json").read_bytes())
    for subject in amendment["subject"]:
        if subject["name"] == path.name:
            subject["digest"]["sha256"] = sha256_hex(raw)
    said = written(amendment)
    signature = make_signature(said, private_key=KEYS[PRINCIPAL].private_key)
    return _changed(path, how, raw, **{"amendment.json": said, "amendment.json.sig": signature})


def _seal(ground: Ground, rng: Random) -> Input:
    """Of a forecast that waits, or of one that was shown."""
    return _signed_document(ground.folder(rng.choice(SEALED)) / "seal.json", rng)


def _opening(ground: Ground, rng: Random) -> Input:
    path = ground.folder("opened") / "opening.json"
    return _changed(path, *_any_change(path, rng))


def _sealed_statement(ground: Ground, rng: Random) -> Input:
    """Another statement than the one that was sealed, well signed."""
    path = ground.folder("opened") / "statement.json"
    how, raw = _any_change(path, rng)
    return _changed(path, how, raw, **_signed(raw))


def _stamp(ground: Ground, rng: Random) -> Input:
    assert ground.authority is not None
    path = ground.authority / "stamp.tsr"
    return _changed(path, *mutated_bytes(path.read_bytes(), rng))


KINDS: Mapping[str, Callable[[Ground, Random], Input]] = {
    "statement, not signed again": _unsigned_statement,
    "statement, signed again": _signed_statement,
    "subject, signed again": _signed_subject,
    "signature": _signature,
    "allowed_signers": _signers,
    "log": _log,
    "log, chained again": _chained_log,
    "outcome": _outcome,
    "notice": _notice,
    "amendment": _amendment,
    "amendment's subject, signed again": _amended_subject,
    "seal": _seal,
    "opening": _opening,
    "statement that was sealed, signed again": _sealed_statement,
    "stamp": _stamp,
}
"""What can be changed, by name."""


def kinds_here(ground: Ground) -> list[str]:
    """Those that can be judged here: stamps need OpenSSL and the extra; lists of signers are read by `ssh-keygen`, too."""
    missing = {"stamp"} if ground.authority is None else set()
    missing |= {"allowed_signers"} if shutil.which("ssh-keygen") is None else set()
    return [kind for kind in KINDS if kind not in missing]
