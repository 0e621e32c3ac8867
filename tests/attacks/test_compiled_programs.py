"""A compiled program that is not what this user's training wrote is never loaded: it is compiled again, with equal curves."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin_scaling.train.compiled_programs import ENDING, sealed_programs

OTHER_USER = 12_345


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{ENDING}"))


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_digest(path: Path) -> None:
    path.write_bytes(path.read_bytes()[32:])


def a_link(path: Path) -> None:
    elsewhere = path.with_name("moved")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").touch()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swapped(path: Path) -> None:
    beside = path.with_name(f"second{ENDING}")
    mine, theirs = path.read_bytes(), beside.read_bytes()
    path.write_bytes(theirs)
    beside.write_bytes(mine)


FORMS: list[Callable[[Path], None]] = [flipped, cut, emptied, without_digest, a_link, a_folder, a_pipe, swapped]


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    return tmp_path / "configuration" / "marin-scaling"


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_program_is_removed_and_named_once(form: Callable[[Path], None], tmp_path: Path, configuration: Path) -> None:
    notes: list[str] = []
    folder = tmp_path / "compiled"
    programs = sealed_programs(folder, on_note=notes.append)
    assert programs is not None
    programs.put("first", b"first program" * 9)
    programs.put("second", b"second program" * 9)
    assert programs.get("first") == b"first program" * 9
    form(folder / f"first{ENDING}")
    assert programs.get("first") is None
    assert not os.path.lexists(folder / f"first{ENDING}")
    assert len(notes) == 1
    programs.put("first", b"first program" * 9)
    assert programs.get("first") == b"first program" * 9


def test_a_program_that_another_user_made_is_not_loaded(tmp_path: Path, configuration: Path) -> None:
    """As a pull request with `git add -f` brings it: its digest is of another key."""
    folder = tmp_path / "compiled"
    theirs = sealed_programs(folder, on_note=pytest.fail)
    assert theirs is not None
    theirs.put("step", b"code")
    (configuration / "compiled_programs.key").unlink()
    notes: list[str] = []
    mine = sealed_programs(folder, on_note=notes.append)
    assert mine is not None
    assert mine.get("step") is None
    assert len(notes) == 1


@pytest.mark.parametrize("spoil", [lambda key: key.chmod(0o644), emptied, a_link, cut])
def test_a_key_that_others_may_know_is_replaced(spoil: Callable[[Path], None], tmp_path: Path, configuration: Path) -> None:
    programs = sealed_programs(tmp_path / "compiled", on_note=pytest.fail)
    assert programs is not None
    programs.put("step", b"code")
    key = configuration / "compiled_programs.key"
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    spoil(key)
    again = sealed_programs(tmp_path / "compiled", on_note=lambda _note: None)
    assert again is not None
    assert again.get("step") is None
    assert key.stat(follow_symlinks=False).st_mode & 0o777 == 0o600
    assert key.read_bytes() != before


def test_without_a_place_for_a_key_every_process_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    notes: list[str] = []
    first, second = (sealed_programs(tmp_path / "compiled", on_note=notes.append) for _process in range(2))
    assert first is not None
    assert second is not None
    first.put("step", b"code")
    assert second.get("step") is None
    assert len(notes) == 3


def test_a_folder_that_others_can_write_becomes_private(tmp_path: Path, configuration: Path) -> None:
    folder = tmp_path / "compiled"
    folder.mkdir()
    folder.chmod(0o777)
    assert sealed_programs(folder, on_note=pytest.fail) is not None
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, configuration: Path) -> None:
    folder = tmp_path / "compiled"
    folder.mkdir()
    os.chown(folder, OTHER_USER, -1)
    notes: list[str] = []
    assert sealed_programs(folder, on_note=notes.append) is None
    assert len(notes) == 1


TRAIN = """
import json, sys
sys.path[:0] = {path!r}
from pathlib import Path
from real_training import losses_of, trained
from run_factory import rung_spec
from jax import monitoring
import marin_scaling.train.train
from marin_scaling.train.levanter_config import use_compilation_cache

marin_scaling.train.train.CHECKPOINT_SECONDS = float("inf")  # saving compiles programs of its own, on a slow machine only
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
notes = []
use_compilation_cache(Path("compiled"), on_note=notes.append)
losses = losses_of(trained(rung_spec(), Path(sys.argv[1])))
print(json.dumps([losses, len(hits), notes]))
"""


def trained_in(folder: Path, name: str) -> tuple[list[float], int, list[str]]:
    """Train a tiny run in a new process; its losses, how many programs were loaded, and what was noted."""
    program = TRAIN.format(path=[str(Path(__file__).parents[1])])
    done = subprocess.run([sys.executable, "-P", "-c", program, name], cwd=folder, capture_output=True, text=True, check=True)
    losses, hits, notes = json.loads(done.stdout.splitlines()[-1])
    return losses, hits, notes


def rotated(forms: list[Callable[[Path], None]], paths: list[Path]) -> Iterator[tuple[Callable[[Path], None], Path]]:
    for number, path in enumerate(paths):
        yield forms[number % len(forms)], path


@pytest.mark.train
def test_no_changed_program_changes_a_loss(tmp_path: Path, configuration: Path) -> None:
    """A run whose programs are all spoiled, each in one of five ways, has the same losses, bit for bit, and loads none."""
    pytest.importorskip("levanter", reason="the train extra is not installed")
    compiled = tmp_path / "compiled"
    first, _, _ = trained_in(tmp_path, "first")
    assert len(entries(compiled)) > 6
    *others, one, two = entries(compiled)
    mine, theirs = one.read_bytes(), two.read_bytes()
    one.write_bytes(theirs)
    two.write_bytes(mine)
    for form, path in rotated([flipped, cut, emptied, without_digest], others):
        form(path)
    spoiled, loaded, notes = trained_in(tmp_path, "spoiled")
    assert spoiled == first
    assert loaded == 0
    assert len(notes) == 1
    mended, loaded, notes = trained_in(tmp_path, "mended")
    assert (mended, loaded, notes) == (first, len(entries(compiled)), [])
