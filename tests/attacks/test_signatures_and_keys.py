"""Attacks on the signature and the keys: someone speaks for someone else, or with a key that proves nothing.

Bob, Carol and Mallory may sign, each in their own name; that does not let them speak for Ada.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from forgery import BOB, MALLORY, edit, key_of, log_again, refused, sign_bytes_again
from registration_factory import PRINCIPAL, make_registration, signing_key

from marin_scaling.preregistration.layout import countersignature_name
from marin_scaling.preregistration.signing.sshsig import (
    NAMESPACE,
    PublicKey,
    Signature,
    armor,
    make_signature,
    parse_signature,
    public_key_of,
    sign_bytes,
    ssh_string,
)


def put_signature(folder: Path, signature: bytes, *, name: str = "statement.json.sig") -> None:
    """Exchange a signature, and log it as if it had come in so."""
    (folder / name).write_bytes(signature)
    log_again(folder.parent)


def statement_of(folder: Path) -> bytes:
    """The bytes that are signed."""
    return (folder / "statement.json").read_bytes()


def limit(registry: Path, options: str) -> None:
    """Put options into the line of Ada's key, as a maintainer would."""
    signers = registry / "allowed_signers"
    first, rest = signers.read_text().split("\n", 1)
    _, _, key = first.partition(" namespaces=")
    signers.write_text(f"{PRINCIPAL} {options} {key.partition(' ')[2]}\n{rest}")


def signed_bytes(content: bytes, *, hash_name: str = "sha512") -> bytes:
    """What an SSH signature is really over, with a hash of the forger's choice."""
    digest = hashlib.new(hash_name, content).digest()
    return b"SSHSIG" + b"".join(map(ssh_string, (NAMESPACE.encode(), b"", hash_name.encode(), digest)))


def forged(public: PublicKey, signature: bytes, *, hash_name: str = "sha512", namespace: str = NAMESPACE) -> bytes:
    """A signature file with parts of the forger's choice."""
    return armor(Signature(public_key=public, namespace=namespace, hash_name=hash_name.encode(), signature=signature))


def test_a_statement_that_was_edited_after_signing_is_refused(root: Path, folder: Path) -> None:
    """A field that nothing else repeats, and a log that was written anew: the signature alone holds it."""
    edit(folder / "statement.json", lambda document: document["predicate"]["resolution"].update(voidIf=[]))
    log_again(folder.parent)
    refused(root, "statement.json.sig", "did not sign these bytes")


def test_a_strangers_signature_is_refused(root: Path, folder: Path) -> None:
    """Anyone can make a key; this one is on no list."""
    sign_bytes_again(folder, statement_of(folder), key=key_of("nobody@example.org"))
    refused(root, "may not sign for ada@example.org", "has no such line")


def test_signing_again_by_another_allowed_key_is_refused(root: Path, folder: Path) -> None:
    """Mallory may sign, and not as Ada."""
    sign_bytes_again(folder, statement_of(folder), key=key_of(MALLORY))
    refused(root, "may not sign for ada@example.org", "has no such line")


def test_a_name_that_another_allowed_key_puts_in_is_refused(root: Path, folder: Path) -> None:
    """Ada signs a forecast in Mallory's name, to let her miss."""
    edit(folder / "statement.json", lambda document: document["predicate"].update(registrant=MALLORY))
    sign_bytes_again(folder, statement_of(folder))
    refused(root, f"may not sign for {MALLORY}", "has no such line")


def test_an_expired_key_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A maintainer has ended its time before the statement was made."""
    limit(registry, f'namespaces="{NAMESPACE}",valid-before="20261101Z"')
    refused(root, "may not sign for ada@example.org", "allowed_signers, line 1 allows the key only before 2026-11-01")


def test_a_key_that_is_not_valid_yet_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Its time began after the statement was made."""
    limit(registry, f'namespaces="{NAMESPACE}",valid-after="20261201Z"')
    refused(root, "may not sign for ada@example.org", "allowed_signers, line 1 allows the key only after 2026-12-01")


def test_a_key_that_is_allowed_for_something_else_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A key for commits signs no forecasts, though its signature is good."""
    limit(registry, 'namespaces="git"')
    refused(root, "may not sign for ada@example.org", "allowed_signers, line 1 allows the key only for the namespaces 'git'")


def test_a_signature_that_was_made_for_something_else_is_refused(root: Path, folder: Path) -> None:
    """What Ada signed as the content of a commit is no promise of hers."""
    put_signature(folder, make_signature(statement_of(folder), private_key=signing_key().private_key, namespace="git"))
    refused(root, "statement.json.sig", "it was made for the namespace 'git'")


def test_a_signature_whose_purpose_was_rewritten_is_refused(root: Path, folder: Path) -> None:
    """The purpose is part of what is signed, so that exchanging it in the file breaks the signature."""
    made = make_signature(statement_of(folder), private_key=signing_key().private_key, namespace="git")
    parts = parse_signature(made, name="")
    put_signature(folder, forged(parts.public_key, parts.signature))
    refused(root, "statement.json.sig", "did not sign these bytes")


def test_a_truncated_signature_is_refused(root: Path, folder: Path) -> None:
    """Half of it, wrapped well."""
    body = (folder / "statement.json.sig").read_bytes().split(b"-----")[2].replace(b"\n", b"")
    half = base64.b64encode(base64.b64decode(body)[:100])
    put_signature(folder, b"-----BEGIN SSH SIGNATURE-----\n" + half + b"\n-----END SSH SIGNATURE-----\n")
    refused(root, "statement.json.sig is not a valid signature: it is cut short")


def test_a_signature_in_another_form_is_refused(root: Path, folder: Path) -> None:
    """One signature has one file and one digest, so that a stamp over it stays one over it."""
    put_signature(folder, (folder / "statement.json.sig").read_bytes().replace(b"\n", b"\n\n", 2))
    refused(root, "statement.json.sig", "it is not written in the one canonical way")


def test_an_empty_signature_is_refused(root: Path, folder: Path) -> None:
    """Nothing is not a signature of nobody."""
    put_signature(folder, b"")
    refused(root, "statement.json.sig", "it has no BEGIN and END SSH SIGNATURE lines")


def test_the_registrants_signature_over_another_statement_is_refused(root: Path, folder: Path, tmp_path: Path) -> None:
    """Moved from one folder to the next."""
    other = make_registration(tmp_path / "other").folder
    put_signature(folder, (other / "statement.json.sig").read_bytes())
    refused(root, "statement.json.sig", "did not sign these bytes")


def test_an_rsa_key_of_1024_bits_is_refused(root: Path, folder: Path) -> None:
    """It can be broken, so that a good signature of it proves nothing."""
    weak, public = weak_rsa_key()
    put_signature(folder, forged(public, sign_bytes(weak, signed_bytes(statement_of(folder)))))
    refused(root, "statement.json.sig", "its RSA key has 1024 bits, fewer than 2048")


def test_an_rsa_key_of_1024_bits_cannot_be_allowed(root: Path, folder: Path, registry: Path) -> None:
    """A list that names one is refused as a whole, with the line."""
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"ada@example.org {weak_rsa_key()[1].text}\n")
    refused(root, "allowed_signers, line 5", "its RSA key has 1024 bits, fewer than 2048")


def weak_rsa_key() -> tuple[rsa.RSAPrivateKey, PublicKey]:
    """A key that our own code makes no `PublicKey` of."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    modulus = weak.public_key().public_numbers().n
    wire = b"".join(map(ssh_string, (b"ssh-rsa", b"\x01\x00\x01", modulus.to_bytes(modulus.bit_length() // 8 + 1, "big"))))
    return weak, PublicKey(kind=b"ssh-rsa", wire=wire, key=weak.public_key())


def test_an_rsa_signature_with_sha_1_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """A real one, by a long key that is Ada's: whoever finds a collision of SHA-1 could exchange what it is over."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"ada@example.org {public_key_of(key).text}\n")
    raw = key.sign(signed_bytes(statement_of(folder)), padding.PKCS1v15(), hashes.SHA1())
    put_signature(folder, forged(public_key_of(key), ssh_string(b"ssh-rsa") + ssh_string(raw)))
    refused(root, "statement.json.sig", "the algorithm b'ssh-rsa' is not one for a key of the kind 'ssh-rsa'")


@pytest.mark.parametrize("hash_name", ["sha1", "md5"])
def test_a_signature_over_a_weak_hash_is_refused(root: Path, folder: Path, hash_name: str) -> None:
    """Really made by Ada's key, over a digest of which another statement can be found."""
    signature = sign_bytes(signing_key().private_key, signed_bytes(statement_of(folder), hash_name=hash_name))
    put_signature(folder, forged(signing_key().public_key, signature, hash_name=hash_name))
    refused(root, "statement.json.sig", f"it uses the hash b'{hash_name}'; only sha256 and sha512 are accepted")


def test_without_a_list_of_signers_nobody_may_sign(root: Path, folder: Path, registry: Path) -> None:
    """Taking the list away trusts nobody, and not everybody."""
    (registry / "allowed_signers").unlink()
    refused(root, "may not sign for ada@example.org", "is not there, or has no lines")


@pytest.mark.parametrize("sign", ["\x0c", "\x0b", "\x85", "\u2028", "\r", "\x1b", "\u202e"])
def test_a_signer_who_hides_in_a_comment_is_refused(root: Path, folder: Path, registry: Path, sign: str) -> None:
    """Behind a sign at which one reader ends the comment and another does not, or that turns the text round."""
    key = key_of("nobody@example.org")
    with (registry / "allowed_signers").open("a", encoding="utf-8") as signers:
        signers.write(f"# maintainers only{sign}ada@example.org {key.public_key.text}\n")
    sign_bytes_again(folder, statement_of(folder), key=key)
    refused(root, "allowed_signers, line 5: it holds a sign that is not shown")


def test_a_certificate_authority_among_the_signers_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """One line would let someone allow any number of keys that no reviewer of the list has seen."""
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"*@example.org cert-authority {key_of(MALLORY).public_key.text}\n")
    refused(root, "allowed_signers, line 5: the option 'cert-authority' is not supported here")


def test_the_registrant_is_no_reviewer_of_their_own(root: Path, folder: Path) -> None:
    """A second signature in the same name is nobody else's."""
    put_signature(folder, (folder / "statement.json.sig").read_bytes(), name=countersignature_name(PRINCIPAL))
    refused(root, f"{countersignature_name(PRINCIPAL)} is a second signature of the registrant")


def test_a_reviewer_with_the_registrants_key_is_refused(root: Path, folder: Path, registry: Path) -> None:
    """Ada writes a second name beside her own key, and reviews herself under it."""
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"dora@example.org {signing_key().public_key.text}\n")
    put_signature(folder, (folder / "statement.json.sig").read_bytes(), name=countersignature_name("dora@example.org"))
    log_again(registry)
    refused(root, "statement.json.dora@example.org.sig: dora@example.org and ada@example.org signed with one key")


def test_a_review_by_another_allowed_key_is_refused(root: Path, folder: Path) -> None:
    """Mallory signs as Bob."""
    signature = make_signature(statement_of(folder), private_key=key_of(MALLORY).private_key)
    put_signature(folder, signature, name=countersignature_name(BOB))
    refused(root, f"may not sign for {BOB}", "has no such line")


def test_a_review_of_another_statement_is_refused(root: Path, folder: Path) -> None:
    """Bob signed what he was shown, and it was something else."""
    shown = statement_of(folder).replace(b'"point": 2.5', b'"point": 2.4')
    signature = make_signature(shown, private_key=key_of(BOB).private_key)
    put_signature(folder, signature, name=countersignature_name(BOB))
    refused(root, f"{countersignature_name(BOB)} is not a valid signature", "did not sign these bytes")


def test_a_reviewer_whom_nobody_allowed_is_refused(root: Path, folder: Path) -> None:
    """A name that looks well beside a forecast."""
    stranger: Any = key_of("famous@example.org").private_key
    put_signature(
        folder, make_signature(statement_of(folder), private_key=stranger), name=countersignature_name("famous@example.org")
    )
    refused(root, "may not sign for famous@example.org", "has no such line")
