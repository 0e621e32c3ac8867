"""Unreadable keys, read-only folders, full disks and a missing train extra: one message, status 2, nothing half-written.

Over a small repository whose rungs are trained as far as its records say.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import (
    assert_message,
    assert_refused,
    listing,
    make_repository,
    marin_scale,
    marin_scale_process,
    obey_file_modes,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from mounted import mounted

DELPHI = Path(__file__).parents[3] / "runs" / "delphi"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Made once; tests work on copies."""
    return make_repository(tmp_path_factory.mktemp("trained") / "repository")


@pytest.fixture
def repository(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "repository")


def assert_modes_can_bind():
    """Skip where a root without the right to give up rights would write through every file mode."""
    try:
        subprocess.run(["true"], preexec_fn=obey_file_modes, check=True)
    except subprocess.SubprocessError:
        pytest.skip("file modes do not bind this user")


def allow_files_up_to(size_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def write_key(folder, *, passphrase=None):
    key, form = ed25519.Ed25519PrivateKey.generate(), serialization.PrivateFormat.OpenSSH
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    (folder / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / "public").write_bytes(public + b" ada@example.org\n")


def preregister(repository, *arguments, **options):
    words = ("preregister", "ladders/tiny.yaml", "--as", "ada@example.org", *arguments)
    if "before" in options:
        return marin_scale_process(*words, cwd=repository, **options)
    return marin_scale(*words, cwd=repository, **options)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("nowhere", "nowhere cannot be used as a signing key: no such file or directory"),
        ("ladders", "ladders cannot be used as a signing key: is a directory"),
        ("ladders/tiny.yaml", "ladders/tiny.yaml cannot be used as a signing key: it is not a private key"),
    ],
    ids=["missing", "a folder", "not a key"],
)
def test_a_key_that_cannot_sign_is_refused_by_name(repository, given, reason):
    """No forecast is printed or registered, and the way to make a key is said."""
    write_key(repository)
    before = listing(repository)
    assert_refused(preregister(repository, "--key", given), reason, "ssh-keygen -t ed25519")
    assert listing(repository) == before


def test_a_public_key_whose_private_half_no_agent_has_signs_nothing(repository):
    """The forecast is printed by then, as where a security key is not touched; nothing is registered."""
    write_key(repository)
    before = listing(repository)
    done = preregister(repository, "--key", "public", environment={"SSH_AUTH_SOCK": ""})
    assert done.returncode == 2
    assert "did not sign: " in done.stderr
    assert "ssh-add" in done.stderr
    assert "Traceback" not in done.stderr
    assert listing(repository) == before


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "key is encrypted, and there is no terminal to ask for its passphrase"),
        ({"MARIN_SCALE_KEY_PASSPHRASE": "wrong"}, "the passphrase does not open it"),
    ],
    ids=["no passphrase", "wrong passphrase"],
)
def test_an_encrypted_key_without_its_passphrase_is_refused(repository, environment, reason):
    """With the name of the variable that may hold it, and never with what it holds."""
    write_key(repository, passphrase=b"open sesame")
    before = listing(repository)
    done = preregister(repository, "--key", "key", environment=environment)
    assert_refused(done, reason)
    assert "wrong" not in done.stderr
    assert listing(repository) == before


def test_an_encrypted_key_signs_with_its_passphrase(repository):
    """The same key is accepted once it can be opened."""
    write_key(repository, passphrase=b"open sesame")
    done = preregister(repository, "--key", "key", environment={"MARIN_SCALE_KEY_PASSPHRASE": "open sesame"})
    assert done.returncode == 0, done.stderr
    assert marin_scale("verify", "all", cwd=repository).returncode == 0
    (registered,) = (repository / "preregistrations").glob("*/forecast.json")
    assert "backtest" in json.loads(registered.read_bytes())


def test_a_key_that_may_not_be_read_is_refused_by_name(repository):
    """As everybody but root meets it."""
    assert_modes_can_bind()
    write_key(repository)
    (repository / "key").chmod(0)
    assert_refused(preregister(repository, "--key", "key", before=obey_file_modes), "key cannot be used", "permission denied")
    assert not (repository / "preregistrations").exists()


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (
            ["preregister", "ladders/tiny.yaml", "--key", "key", "--as", "a@b.org"],
            "preregistrations cannot be written",
        ),
        (["ladder", "ladders/tiny.yaml"], "runs/tiny cannot be written: permission denied"),
        (["fit", "runs/tiny", "--plot", "law.svg"], "law.svg cannot be written: permission denied"),
        (["init", "."], "cannot be written: permission denied"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_folder_that_may_not_be_written_is_named(repository, arguments, fragment):
    """Before the first rung is trained, not after; every file stays as it was."""
    assert_modes_can_bind()
    if arguments[0] == "ladder":
        if find_spec("levanter") is None:
            pytest.skip("the train extra is not installed")
        next((repository / "runs" / "tiny").iterdir()).rename(repository.parent / "lost")
    write_key(repository)
    before = listing(repository)
    for folder in (repository / "runs" / "tiny", repository):
        folder.chmod(0o555)
    done = marin_scale_process(*arguments, cwd=repository, before=obey_file_modes)
    assert done.returncode == 2, done.stderr
    assert_message(done, fragment, "permission")
    assert listing(repository) == before


def test_a_file_system_that_is_read_only_is_named(repository):
    """Checking a forecast there fails by name, before a word is said of its outcome."""
    with mounted(repository / "disk", "size=1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = marin_scale("fit", DELPHI, "--plot", "disk/law.json", cwd=repository)
        assert_refused(done, "disk/law.json cannot be written: read-only file system", "writable folder")
        assert listing(disk) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", DELPHI, "--plot", "disk/law.html"],
        ["preregister", "ladders/tiny.yaml", "--registry", "disk/preregistrations", "--key", "key", "--as", "a@b.org"],
        ["init", "disk"],
    ],
    ids=["fit", "preregister", "init"],
)
def test_a_full_disk_leaves_no_file_half_written(repository, arguments):
    """Each file on it is whole or absent; a registration without all of its files is no registration."""
    write_key(repository)
    with mounted(repository / "disk", "size=8k") as disk:
        (disk / "ballast").write_bytes(b"x" * 4096)
        done = marin_scale(*arguments, cwd=repository)
        assert done.returncode == 2, done.stderr
        assert_message(done, "disk/", "no space left on device", "Free some space")
        left = [path for path in disk.rglob("*") if path.is_file()]
        assert not [path for path in left if path.name.endswith(".tmp") or path.stat().st_size == 0]
        assert not list(disk.glob("preregistrations/*/statement.json"))


def test_a_limit_on_file_sizes_leaves_no_file_half_written(repository):
    """What a quota does; needs no right to mount."""
    before = listing(repository)
    done = marin_scale_process(
        "fit", "runs/tiny", "--plot", "law.html", cwd=repository, before=partial(allow_files_up_to, 4096)
    )
    assert_refused(done, "law.html cannot be written: file too large")
    assert listing(repository) == before


@pytest.mark.train
def test_a_disk_that_is_full_of_runs_is_found_before_training(repository):
    """The data does not fit: said before the first step, and no part of it is left."""
    pytest.importorskip("levanter", reason="the train extra is not installed")
    next((repository / "runs" / "tiny").iterdir()).rename(repository.parent / "lost")
    with mounted(repository / ".marin-scaling", "size=1m") as disk:
        done = marin_scale("ladder", "ladders/tiny.yaml", cwd=repository)
        assert done.returncode == 2, done.stderr
        assert_message(done, "train.bin cannot be written: no space left on device", "rerun")
        assert [path for path in disk.rglob("*") if path.is_file()] == []


@pytest.fixture
def without_train_extra(tmp_path):
    """An environment in which nothing that only the extra brings can be imported."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    names = "('levanter', 'haliax', 'jax', 'jaxlib', 'equinox', 'jmp', 'optax', 'fsspec', 'datasets', 'tokenizers')"
    (hidden / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({names}))\n")
    return {"PYTHONPATH": os.pathsep.join([str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_training_without_the_train_extra_is_refused_with_the_command_that_installs_it(repository, without_train_extra):
    """The plan is still printed; no working folder is made."""
    shutil.rmtree(repository / "runs")
    before = listing(repository)
    done = marin_scale_process("ladder", "ladders/tiny.yaml", cwd=repository, environment=without_train_extra)
    assert done.returncode == 2
    assert_message(done, 'no "train" extra', "pip install ", "[train]")
    assert listing(repository) == before


def test_text_of_one_s_own_without_the_train_extra_is_refused_the_same_way(repository, without_train_extra):
    """Its readers come with the extra; the plan says so and stands."""
    with open(repository / "ladders" / "tiny.yaml", "a") as file:
        file.write("data: {source: mine, train: {files: a.jsonl}, validation: {held: {files: b.jsonl}}}\n")
    done = marin_scale_process("ladder", "ladders/tiny.yaml", "--dry-run", cwd=repository, environment=without_train_extra)
    assert_message(done, 'no "train" extra, which text of your own needs')


def test_a_model_is_not_written_without_the_train_extra(repository, without_train_extra):
    """Its converter comes with the extra."""
    rung = next((repository / "runs" / "tiny").iterdir()).name
    done = marin_scale_process("export", rung, "--to", "model", cwd=repository, environment=without_train_extra)
    assert_refused(done, 'no "train" extra, which writing a model needs')
    assert not (repository / "model").exists()


ALL = """
import sys
from marin_scaling.cli import main
for words in {commands!r}:
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


def test_all_but_training_works_without_the_train_extra(repository, without_train_extra):
    """Planning, fitting, registering, verifying and checking need no accelerator library."""
    write_key(repository)
    commands = [
        ["ladder", "ladders/tiny.yaml", "--dry-run"],
        ["fit", "runs/tiny", "--predict", "1e13"],
        ["preregister", "ladders/tiny.yaml", "--key", "key", "--as", "ada@example.org"],
        ["verify", "all"],
        ["check", "all"],
    ]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(repository / ".config"), **without_train_extra}
    program = [sys.executable, "-c", ALL.format(commands=commands)]
    done = subprocess.run(program, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = next((repository / "preregistrations").glob("*-tiny"))
    done = marin_scale_process("run", folder, cwd=repository, environment=without_train_extra)
    assert_refused(done, 'no "train" extra')
