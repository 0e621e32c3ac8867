"""Attacks on whom a registry trusts: a change of its list of signers, policy or roots that says less than it allows.

Bob's key was given up before: its line has an end. What `review` prints is what a maintainer decides by.
"""

import html
import re
import subprocess
from pathlib import Path

import pytest
from forgery import BOB, CAROL, MALLORY, allow, key_of, log_again, refused, said_by
from git_repository import branch_off, commit
from registration_factory import CREATED_AT, PRINCIPAL, make_registration, signing_key
from time_authority import make_authority
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.ladder.config import Promise
from marin_scaling.preregistration.events.notice import give_notice
from marin_scaling.preregistration.layout import countersignature_name
from marin_scaling.preregistration.register import countersign
from marin_scaling.preregistration.review.changes import look_alike
from marin_scaling.preregistration.signing.sshsig import NAMESPACE, make_signature

SPACE = f'namespaces="{NAMESPACE}"'
EVIL = key_of("evil@example.org").public_key.text


@pytest.fixture
def signers(registry: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The list on a branch of a repository whose main has it, too."""
    path = registry / "allowed_signers"
    ended = [
        line.replace(SPACE, f'{SPACE},valid-before="20261101Z"') if BOB in line else line
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(ended) + "\n")
    (registry / "policy.yaml").write_text("since: 2026-11-30\nreviewers: 2\nstamps: 1\nown_resolver: false\n")
    branch_off(root)
    monkeypatch.chdir(root)
    return path


def reviewed(status: int = 0) -> str:
    """What the review of the branch says."""
    done = CliRunner().invoke(app, ["review", "--base", "main", "--markdown"])
    assert done.exit_code == status, done.output
    return html.unescape(re.sub("</?code>", "", done.stdout))


def warned(*fragments: str) -> None:
    """That the review has a warning with all fragments, before anything else that it says."""
    verdicts, _, rest = reviewed().partition("The registry: ")
    assert rest
    assert any(all(part in line for part in fragments) for line in verdicts.splitlines() if "**Warning**" in line), verdicts


@pytest.mark.parametrize(
    "names",
    [
        "*",
        "*@*",
        "?da@example.org",
        "dora@example.org,ada@example.org",
        "!bob@example.org,*",
        '"dora@example.org"',
        "dora",
        "\u0430da@example.org",
        "ada@example.org\u200b",
        "Ada@example.org",
        "ADA@EXAMPLE.ORG",
    ],
)
@pytest.mark.parametrize("options", [SPACE, ""])
def test_a_line_that_speaks_for_more_than_one_name_is_refused(root: Path, signers: Path, names: str, options: str) -> None:
    """Patterns, lists, quotes, names of other alphabets, and a name that differs in case only."""
    signers.write_text(f"{signers.read_text()}{names} {options} {EVIL}\n")
    assert "**Refused**" in reviewed(status=1)
    refused(root, "allowed_signers, line 5", options=("--base", "main"))
    refused(root, "allowed_signers, line 5")


@pytest.mark.parametrize("options", ["cert-authority", f"cert-authority,{SPACE}", "no-touch-required"])
def test_a_line_with_options_of_others_is_refused(root: Path, signers: Path, options: str) -> None:
    """A certificate authority, and what OpenSSH could read otherwise."""
    signers.write_text(f"{signers.read_text()}dora@example.org {options} {EVIL}\n")
    refused(root, "allowed_signers, line 5")


def test_a_key_that_stands_twice_in_one_name_is_refused(root: Path, signers: Path) -> None:
    """The second line would undo the end of the first."""
    signers.write_text(f"{signers.read_text()}{BOB} {SPACE} {key_of(BOB).public_key.text}\n")
    refused(root, "allowed_signers, line 5", BOB)


def test_every_new_line_says_what_it_allows(signers: Path) -> None:
    """A second key of a name, with its fingerprint."""
    signers.write_text(f"{signers.read_text()}{PRINCIPAL} {SPACE} {EVIL}\n")
    warned(
        f"may sign forecasts as {PRINCIPAL} without an end",
        "has another key",
        key_of("evil@example.org").public_key.fingerprint,
    )


@pytest.mark.parametrize(
    "name", ["ada@examp1e.org", "ada@exarnple.org", "ada@example.0rg", "ad@example.org", "daa@example.org"]
)
def test_a_name_that_looks_like_another_is_warned_of(signers: Path, name: str) -> None:
    """A digit for a letter, two letters for one, one letter less, two exchanged."""
    signers.write_text(f"{signers.read_text()}{name} {SPACE} {EVIL}\n")
    warned(f"{name} looks like", PRINCIPAL)
    assert not look_alike(BOB, CAROL)


def test_a_key_under_a_second_name_is_warned_of(signers: Path) -> None:
    """One person would be two."""
    signers.write_text(f"{signers.read_text()}dora@example.org {SPACE} {signing_key().public_key.text}\n")
    warned("one key for two names: dora@example.org and ada@example.org")


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (',valid-before="20261101Z"', "", "the end of this key was removed"),
        ('"20261101Z"', '"20291101Z"', "the end of this key was moved later"),
        (SPACE, 'namespaces="*"', "its namespaces are wider"),
        (SPACE, f'namespaces="git,{NAMESPACE}"', "its namespaces are wider"),
        (f"{SPACE} ", "", "its namespaces are wider"),
    ],
)
def test_a_line_that_allows_more_than_before_is_warned_of(signers: Path, old: str, new: str, warning: str) -> None:
    """The end of a key that was given up above all."""
    assert old in signers.read_text()
    signers.write_text(signers.read_text().replace(old, new, 1))
    warned(warning)


def test_a_start_that_is_moved_is_warned_of(root: Path, signers: Path) -> None:
    """An older date may then be written with that key."""
    limited = signers.read_text().replace(SPACE, f'{SPACE},valid-after="20261001Z"', 1)
    signers.write_text(limited)
    commit(root)
    subprocess.run(["git", "branch", "-f", "main"], cwd=root, check=True)
    for changed, warning in (
        (limited.replace("20261001Z", "20200101Z"), "moved earlier"),
        (limited.replace(',valid-after="20261001Z"', ""), "removed"),
    ):
        signers.write_text(changed)
        warned(f"the start of this key was {warning}")


def test_a_line_that_is_taken_out_is_warned_of(signers: Path) -> None:
    """What it signed is refused from then on."""
    signers.write_text("".join(line for line in signers.read_text().splitlines(keepends=True) if CAROL not in line))
    warned(f"removed: {CAROL}", "is refused from then on")


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("reviewers: 2", "reviewers: 0", "reviewers: 2 -> 0"),
        ("stamps: 1\n", "", "stamps: 1 -> 0"),
        ("own_resolver: false", "own_resolver: true", "own_resolver: false -> true"),
        ("since: 2026-11-30", "since: 9999-01-01", "since: 2026-11-30 -> 9999-01-01"),
    ],
)
def test_a_rule_that_is_loosened_is_warned_of(signers: Path, old: str, new: str, change: str) -> None:
    """Each rule before and after."""
    policy = signers.with_name("policy.yaml")
    policy.write_text(policy.read_text().replace(old, new))
    warned(change, "looser")


def test_a_policy_that_is_removed_is_warned_of(signers: Path) -> None:
    """Every rule of it ends; a stricter one is shown without a warning."""
    policy = signers.with_name("policy.yaml")
    text = policy.read_text()
    policy.write_text(text + "due_days: 90\n")
    assert "due_days: 1464 -> 90 (stricter)" in reviewed()
    policy.unlink()
    warned("policy.yaml, removed")
    warned("reviewers: 2 -> 0", "looser")
    warned("own_resolver: false -> true", "looser")


def test_a_new_time_authority_is_named(signers: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """By its subject and fingerprint; what is no certificate is refused."""
    roots = signers.with_name("tsa_roots.pem")
    roots.write_text("a root certificate")
    assert "**Refused**" in reviewed(status=1)
    roots.write_bytes((make_authority(tmp_path_factory.mktemp("tsa") / "one") / "root.pem").read_bytes())
    warned("tsa_roots.pem, new: ", "SHA-256 ")


def ask_for_two(root: Path) -> Path:
    """A forecast by Ada, in a registry where reviewers and resolver must be other people; Dora and Ada have one key."""
    registration = make_registration(root, promise=Promise(resolver="dora@example.org", void_if=("the text is gone",)))
    registry = registration.folder.parent
    allow(registry, BOB, CAROL, MALLORY)
    with (registry / "allowed_signers").open("a") as signers:
        signers.write(f"dora@example.org {SPACE} {signing_key().public_key.text}\n")
        signers.write(f"dora@example.org {SPACE} {EVIL}\n")
    return registration.folder


def test_a_resolver_who_is_the_registrant_under_another_name_is_refused(root: Path) -> None:
    """By the key that both names have."""
    folder = ask_for_two(root)
    (folder.parent / "policy.yaml").write_text("since: 2026-11-01\nown_resolver: false\n")
    refused(root, "another resolver than the registrant")


def test_a_reviewer_who_is_the_registrant_under_another_name_counts_for_nobody(root: Path) -> None:
    """Dora signs with a second key of hers."""
    folder = ask_for_two(root)
    (folder.parent / "policy.yaml").write_text("since: 2026-11-01\nreviewers: 1\n")
    signature = make_signature((folder / "statement.json").read_bytes(), private_key=key_of("evil@example.org").private_key)
    (folder / countersignature_name("dora@example.org")).write_bytes(signature)
    log_again(folder.parent)
    refused(root, "1 signature of reviewers", "has 0")
    countersign(folder, key=key_of(BOB), principal=BOB)
    log_again(folder.parent)
    assert said_by("verify", root)[0] == 0


def test_two_reviewers_with_a_common_key_count_once(root: Path) -> None:
    """Two names of one person."""
    folder = ask_for_two(root)
    with (folder.parent / "allowed_signers").open("a") as signers:
        signers.write(f"{BOB} {SPACE} {key_of(CAROL).public_key.text}\n")
    (folder.parent / "policy.yaml").write_text("since: 2026-11-01\nreviewers: 2\n")
    for name in (BOB, CAROL):
        countersign(folder, key=key_of(name), principal=name)
    log_again(folder.parent)
    refused(root, "2 signatures of reviewers", "has 1")


def test_a_resolver_who_is_the_registrant_under_another_name_finds_nothing_void(root: Path) -> None:
    """The notice is signed well, by the second key of the second name."""
    folder = ask_for_two(root)
    said = {"principal": "dora@example.org", "at": CREATED_AT, "reason": "x", "condition": "the text is gone"}
    give_notice(folder, "void", key=key_of("evil@example.org"), **said)
    log_again(folder.parent)
    refused(root, "dora@example.org and the registrant ada@example.org are one person")
