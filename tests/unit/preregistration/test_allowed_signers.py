"""Who may sign: OpenSSH's file, read as OpenSSH reads it."""

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from registration_factory import signing_key

from marin_scaling.errors import DocumentError, VerificationError
from marin_scaling.preregistration.signing.allowed_signers import (
    MAX_LINE_CHARACTERS,
    parse_allowed_signers,
    require_allowed,
    require_may_sign,
    signer_line,
)
from marin_scaling.preregistration.signing.sshsig import NAMESPACE

KEY = signing_key().public_key
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def allowed(text, *, principal="ada@example.org", at=NOON):
    signers = parse_allowed_signers(text.encode(), name="allowed_signers")
    return require_allowed(signers, principal=principal, key=KEY, namespace=NAMESPACE, at=at, source="allowed_signers")


def test_the_line_that_we_write_allows_its_signer():
    """What register adds is what verify asks for."""
    assert allowed(signer_line("ada@example.org", key=KEY, namespace=NAMESPACE)).where == "allowed_signers, line 1"


@pytest.mark.parametrize(
    "line",
    [
        f"ada@example.org {KEY.text}",
        f"ada@example.org {KEY.text} a comment of words",
        f'ada@example.org namespaces="git,{NAMESPACE}",valid-after="20260101Z" {KEY.text}',
        f'ada@example.org valid-after="20261120Z",valid-before="202611201300Z" {KEY.text}',
        f"# a comment\n\n  ada@example.org {KEY.text}",
    ],
)
def test_lines_that_allow(line):
    """Options and comments as in ssh-keygen(1)."""
    assert allowed(line).key.wire == KEY.wire


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "is not there, or has no lines"),
        (f"bob@example.org {KEY.text}", "has no such line"),
        (f'ada@example.org namespaces="git" {KEY.text}', "only for the namespaces 'git'"),
        (f'ada@example.org namespaces="!{NAMESPACE},*" {KEY.text}', "only for the namespaces"),
        (f'ada@example.org valid-after="20261121Z" {KEY.text}', "only after 2026-11-21T00:00:00Z"),
        (f'ada@example.org valid-before="20261120115959Z" {KEY.text}', "only before 2026-11-20T11:59:59Z"),
    ],
)
def test_lines_that_do_not_allow(line, reason):
    """Another name, another use, too early, too late: the refusal says which."""
    with pytest.raises(VerificationError, match=reason):
        allowed(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ada@example.org", "not of the form"),
        ("ada@example.org ssh-ed25519", "not of the form"),
        (f"ada@example.org {KEY.text.replace(' ', chr(34), 1)}", "not of the form"),
        ("ada@example.org ssh-ed25519 AAAA", "cut short"),
        ("ada@example.org ssh-ed25519 !!!!", "not base64"),
        ("ada@example.org ssh-dss AAAAB3NzaC1kc3MAAAAA", "kind"),
        (f"ada@example.org cert-authority {KEY.text}", "'cert-authority' is not supported"),
        (f'ada@example.org valid-after="20260101" {KEY.text}', "UTC"),
        (f'ada@example.org valid-after="20261399Z" {KEY.text}', "no moment"),
        (f'ada@example.org namespaces="a",namespaces="b" {KEY.text}', "stands twice"),
        (f'ada@example.org namespaces="a"b {KEY.text}', "cannot be read"),
        (f"ada@example.org valid-after=20260101Z {KEY.text}", "cannot be read"),
        (f'ada@example.org valid-after="２０２６０１０１Z" {KEY.text}', "UTC"),
        (f"{'*' * MAX_LINE_CHARACTERS} {KEY.text}", "characters, more than 16384"),
        (f"*@example.org {KEY.text}", "not one name"),
        (f'"bob@example.org,ada@*" {KEY.text}', "not one name"),
        (f"!ada@example.org,*@example.org {KEY.text}", "not one name"),
        (f"ad[a]@example.org {KEY.text}", "not one name"),
        (f"ada {KEY.text}", "not one name"),
    ],
)
def test_a_malformed_line_is_named(line, reason):
    """The error says file, line and reason, so that a maintainer can mend it."""
    with pytest.raises(DocumentError, match=r"allowed_signers, line 2: .*" + reason):
        parse_allowed_signers(f"# first\n{line}\n".encode(), name="allowed_signers")


@pytest.mark.parametrize(
    "line",
    [
        f'*@example.org namespaces="git" {KEY.text}',
        f'"bob@example.org,eve@example.org" namespaces="git,file" {KEY.text}',
        f'bob@example.org cert-authority,namespaces="git" {KEY.text}',
        'bob@example.org namespaces="git" ssh-dss AAAAB3NzaC1kc3MAAAAA',
        f'*@example.org namespaces="*,!{NAMESPACE}" {KEY.text}',
    ],
)
def test_a_line_for_other_programs_blocks_nothing_and_lets_nobody_sign(line):
    """Its namespaces leave ours out, so what else it says does not matter here."""
    own = signer_line("ada@example.org", key=KEY, namespace=NAMESPACE)
    assert allowed(f"{line}\n{own}\n").where == "allowed_signers, line 2"
    with pytest.raises(VerificationError):
        allowed(f"{line}\n{own}\n", principal="bob@example.org")


def test_a_line_for_other_programs_that_also_names_ours_is_read_as_any_other():
    """A pattern could let anybody sign."""
    with pytest.raises(DocumentError, match="line 1"):
        allowed(f'*@example.org namespaces="git,{NAMESPACE}" {KEY.text}')


def test_bytes_that_are_no_text_are_refused():
    """The list is UTF-8."""
    with pytest.raises(DocumentError, match="UTF-8"):
        parse_allowed_signers(b"\xff\xfe", name="allowed_signers")


def test_lines_of_windows_are_read():
    """A carriage return before the line feed belongs to the line's end."""
    assert allowed(f"# comment\r\n{signer_line('ada@example.org', key=KEY, namespace=NAMESPACE)}\r\n").key.wire == KEY.wire


def test_marks_of_a_merge_that_is_not_resolved_are_told_as_such():
    """A list with both sides in it counts for nobody."""
    line = signer_line("ada@example.org", key=KEY, namespace=NAMESPACE)
    with pytest.raises(DocumentError, match=r"line 1, .*merge"):
        parse_allowed_signers(f"<<<<<<< HEAD\n{line}\n=======\n>>>>>>> main\n".encode(), name="allowed_signers")


def test_who_signs_with_another_key_is_told_which_one_is_listed(tmp_path):
    """And who is not listed at all, which line a maintainer would have to add."""
    path = tmp_path / "allowed_signers"
    path.write_text(signer_line("ada@example.org", key=KEY, namespace=NAMESPACE) + "\n")
    other = signing_key(ed25519.Ed25519PrivateKey.from_private_bytes(bytes([9] * 32))).public_key
    asked = {"key": other, "namespace": NAMESPACE, "at": NOON}
    for principal, fix in (
        ("ada@example.org", f"ada@example.org, {KEY.fingerprint}: --key"),
        ("bob@example.org", "Ask a maintainer to add your line first: bob@example.org"),
    ):
        with pytest.raises(VerificationError, match=principal) as error:
            require_may_sign(path, principal=principal, **asked)
        assert fix in error.value.fix


def test_who_signs_with_the_key_of_another_person_is_told_whose_it_is(tmp_path):
    """The line of that key is not offered for a second name."""
    path = tmp_path / "allowed_signers"
    path.write_text(signer_line("ada@example.org", key=KEY, namespace=NAMESPACE) + "\n")
    with pytest.raises(VerificationError) as error:
        require_may_sign(path, principal="bob@example.org", key=KEY, namespace=NAMESPACE, at=NOON)
    assert all(fact in error.value.fix for fact in ("ada@example.org", "bob@example.org", "--key", str(path)))
    assert KEY.text not in error.value.fix
