"""Which key signs, and whose name it signs in."""

import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from marin_scaling.errors import SigningError
from marin_scaling.preregistration.signing.keys import find_principal, find_signing_key, load_signing_key, make_signing_key
from marin_scaling.preregistration.signing.sshsig import verify_signature


@pytest.fixture(autouse=True)
def no_git_settings(tmp_path, monkeypatch):
    """Git reads an empty configuration, whatever the machine holds."""
    (tmp_path / "gitconfig").write_text("")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.chdir(tmp_path)


def git_setting(tmp_path, name, value):
    subprocess.run(["git", "config", "--file", tmp_path / "gitconfig", name, value], check=True)


def test_a_key_is_made_on_first_use_and_used_again(tmp_path):
    """The first forecast needs no set-up, and the second is signed by the same key."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    first, second = find_signing_key(make=True, environment=environment), find_signing_key(make=True, environment=environment)
    assert first.note.startswith("new signing key ")
    assert second.note.startswith("signing key ")
    assert second.public_key.wire == first.public_key.wire
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert first.path.with_name("signing_key.pub").read_text() == f"{first.public_key.text} marin-scaling\n"


def test_git_decides_when_it_signs_with_ssh(tmp_path):
    """Who signs commits with a key signs forecasts with it; the public half names the private one."""
    made = make_signing_key(tmp_path / "mine")
    git_setting(tmp_path, "user.signingkey", str(tmp_path / "mine.pub"))
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert (
        find_signing_key(make=True, environment=environment).public_key.wire != made.public_key.wire
    )  # gpg.format is not ssh yet
    git_setting(tmp_path, "gpg.format", "ssh")
    assert find_signing_key(make=True, environment=environment).public_key.wire == made.public_key.wire


def test_an_option_goes_before_everything(tmp_path):
    """--key is the last word."""
    made = make_signing_key(tmp_path / "mine")
    assert find_signing_key(tmp_path / "mine", environment={}).public_key.wire == made.public_key.wire


def test_a_key_is_never_overwritten(tmp_path):
    """Making a key where one lies is an error."""
    make_signing_key(tmp_path / "mine")
    with pytest.raises(SigningError, match="cannot be made"):
        make_signing_key(tmp_path / "mine")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a private key"),
        (b"hello", "not a private key"),
        (b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA== ada", "its key cannot be read"),
        (b"-----BEGIN PUBLIC KEY-----\n", "public key only"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "not a private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key"),
        (b"\xff\x00", "not a private key"),
    ],
)
def test_a_file_that_is_no_private_key_is_named(tmp_path, content, reason):
    """The error names the path and says what it holds."""
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(SigningError, match=rf"{tmp_path / 'key'} cannot be used as a signing key: .*{reason}"):
        load_signing_key(tmp_path / "key", note="test")


def test_a_missing_key_is_named(tmp_path):
    """A typing error in --key is told as one."""
    with pytest.raises(SigningError, match=r"nowhere.*no such file"):
        find_signing_key(tmp_path / "nowhere", environment={})


def test_a_short_rsa_key_is_refused(tmp_path):
    """A 1024-bit key is refused when it is read, not when someone verifies."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    (tmp_path / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SigningError, match="1024 bits"):
        load_signing_key(tmp_path / "key", note="test")


def test_the_principal_is_the_option_then_git_then_the_login(tmp_path, monkeypatch):
    """A name is always found, and a better one can be given."""
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    assert find_principal() == "ada@laptop"
    git_setting(tmp_path, "user.email", "ada@example.org")
    assert find_principal() == "ada@example.org"
    assert find_principal("bob@example.org") == "bob@example.org"


@pytest.mark.parametrize(
    "name", ["ada", "ada @example.org", '"ada"@example.org', "*@example.org", "a,b@example.org", "a@b\nc@d"]
)
def test_a_name_that_would_mean_something_else_in_the_list_of_signers_is_refused(name):
    """A principal of `*` would let everyone sign."""
    with pytest.raises(SigningError, match="cannot be the name of a signer"):
        find_principal(name)


def test_without_make_no_key_is_made(tmp_path: Path) -> None:
    """A key that nobody has listed can sign no notice or review, so that none appears behind the user's back."""
    with pytest.raises(SigningError):
        find_signing_key(environment={"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)})
    assert not (tmp_path / "config").exists()


SIGNER = """\
#!/bin/sh
echo "$@" >>"$(dirname "$0")/signer.log"
key=$(dirname "$0")/vault/key
while [ $# -gt 1 ]; do [ "$1" = -f ] && shift; shift; done
exec ssh-keygen -q -Y sign -n {namespace} -f "$key" "$1"
"""


def a_signer(tmp_path, *, namespace="preregistration@marin-scaling"):
    """A program that alone has a private key, as a password manager has; the key's public half."""
    (tmp_path / "vault").mkdir()
    made = make_signing_key(tmp_path / "vault" / "key")
    path = tmp_path / "signer"
    path.write_text(SIGNER.format(namespace=namespace))
    path.chmod(0o700)
    git_setting(tmp_path, "gpg.format", "ssh")
    git_setting(tmp_path, "gpg.ssh.program", str(path))
    return made.public_key


@pytest.mark.parametrize("setting", ["key::{}", "{}", "FILE"])
def test_the_program_that_git_signs_with_signs(tmp_path, setting):
    """Of a public key in git's settings, or in a file that they name."""
    public = a_signer(tmp_path)
    (tmp_path / "id.pub").write_text(f"{public.text}\n")
    git_setting(tmp_path, "user.signingkey", setting.format(public.text).replace("FILE", str(tmp_path / "id.pub")))
    key = find_signing_key(environment={})
    assert verify_signature(key.sign(b"content"), content=b"content", name="x").wire == public.wire
    assert " -Y sign -n preregistration@marin-scaling -f " in f" {(tmp_path / 'signer.log').read_text()}"


def test_a_signature_that_the_program_made_for_something_else_is_refused(tmp_path):
    """It is verified before it is written."""
    public = a_signer(tmp_path, namespace="git")
    git_setting(tmp_path, "user.signingkey", public.text)
    with pytest.raises(SigningError):
        find_signing_key(environment={}).sign(b"content")


def test_the_key_is_the_first_that_the_default_key_command_prints(tmp_path):
    """Where git's settings name no key."""
    public = a_signer(tmp_path)
    git_setting(tmp_path, "gpg.ssh.defaultKeyCommand", f"cat {tmp_path / 'vault' / 'key.pub'}")
    key = find_signing_key(environment={})
    assert key.public_key.wire == public.wire
    assert verify_signature(key.sign(b"content"), content=b"content", name="x").wire == public.wire


def test_a_default_key_command_that_prints_no_key_is_named(tmp_path):
    """With what it printed."""
    git_setting(tmp_path, "gpg.format", "ssh")
    git_setting(tmp_path, "gpg.ssh.defaultKeyCommand", "echo nothing")
    with pytest.raises(SigningError, match=r"gpg\.ssh\.defaultKeyCommand.*'nothing'"):
        find_signing_key(environment={})


@pytest.mark.parametrize("program", ["./signer", "tools/signer", "no-such-program-anywhere"])
def test_a_program_that_is_relative_to_a_folder_is_refused(tmp_path, program):
    """It could be a file of a stranger's repository."""
    public = a_signer(tmp_path)
    git_setting(tmp_path, "user.signingkey", public.text)
    git_setting(tmp_path, "gpg.ssh.program", program)
    with pytest.raises(SigningError, match=r"gpg\.ssh\.program"):
        find_signing_key(environment={})


@pytest.mark.parametrize("name", ["gpg.ssh.program", "gpg.ssh.defaultKeyCommand"])
def test_no_program_of_a_repositorys_own_settings_is_run(tmp_path, name):
    """Neither when signing, nor when looking for a key."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "evil").write_text("#!/bin/sh\ntouch " + str(tmp_path / "ran") + "\n")
    (tmp_path / "evil").chmod(0o700)
    git_setting(tmp_path, "gpg.format", "ssh")
    subprocess.run(["git", "-C", tmp_path, "config", name, str(tmp_path / "evil")], check=True)
    if name == "gpg.ssh.program":
        made = make_signing_key(tmp_path / "mine")
        git_setting(tmp_path, "user.signingkey", str(made.path))
    find_signing_key(make=True, environment={"XDG_CONFIG_HOME": str(tmp_path / "config")}).sign(b"content")
    assert not (tmp_path / "ran").exists()
