"""Files that a pull request can change are read in one place, which takes regular files with plain names only."""

import ast
import os
import unicodedata
from pathlib import Path

import pytest

from marin_scaling import untrusted_files as regular_files
from marin_scaling.errors import StorageError, VerificationError
from marin_scaling.files import read_bytes, read_own_bytes
from marin_scaling.untrusted_files import read_regular_file, require_regular_tree, shown, trusted_root

PACKAGE = Path(regular_files.__file__).parent
OWN_READERS = {
    "errors.py": "the record of this installation",
    "files.py": "a lock of this machine",
    "cli/__init__.py": "the null device",
    "data/tokenizer.py": "a tokenizer of this machine",
    "data/prepare.py": "text that was prepared on this machine",
    "data/documents.py": "Python's own library",
    "data/filter.py": "corpora that are written on this machine",
    "fitting/combined_law.py": "a file of the package",
    "preregistration/signing/keys.py": "a person's keys",
    "preregistration/events/seal.py": "the answer of a time authority",
    "publish/figures.py": "a file of the package, and the cache of this user",
    "speedrun/entry.py": "files of the package",
    "untrusted_files.py": "the reader itself",
    "run/table_io.py": "the content of a compressed table, in memory",
    "run/curves.py": "a curve under way on this machine",
    "train/ray_pool.py": "a log of this machine",
    "train/compile_for.py": "a log of this machine",
    "train/launcher.py": "a log of this machine",
    "train/checkpoints.py": "checkpoints of this machine",
    "train/compiled_programs.py": "compiled programs of this machine",
}
"""Every module that opens a file by itself, and why it may."""


def test_no_other_module_opens_a_file() -> None:
    """New code reads with `read_bytes`, or is listed here with a reason."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call):
                continue
            is_method = isinstance(node.func, ast.Attribute)
            name = node.func.attr if is_method else getattr(node.func, "id", "")
            is_remote = is_method and ast.unparse(node.func.value).endswith("fsspec")
            if name in ("read_bytes", "read_text") and is_method and ast.unparse(node.func.value) != "durable_files":
                found.add(path.relative_to(PACKAGE).as_posix())
            if name == "open" and not is_remote:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(OWN_READERS)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with one file in a data folder; it is the current directory."""
    root = tmp_path / "root"
    (root / ".git").mkdir(parents=True)
    (root / "runs" / "x").mkdir(parents=True)
    (root / "runs" / "x" / "a.txt").write_text("one\n")
    monkeypatch.chdir(root)
    return root


def test_a_regular_file_is_read(root: Path) -> None:
    """By a relative path, an absolute one, one with dots, and through another hard link."""
    os.link("runs/x/a.txt", "runs/x/b.txt")
    for path in (Path("runs/x/a.txt"), root / "runs/x/a.txt", Path("runs/../runs/x/a.txt"), Path("runs/x/b.txt")):
        assert read_regular_file(path) == b"one\n"


def test_a_file_has_a_bounded_size(root: Path) -> None:
    """The size is what is read, not only what the disk says: a file of the system says 0."""
    assert read_regular_file(Path("runs/x/a.txt"), most_bytes=4) == b"one\n"
    with pytest.raises(StorageError, match="4 bytes, more than 3"):
        read_regular_file(Path("runs/x/a.txt"), most_bytes=3)
    with pytest.raises(StorageError):
        read_regular_file(Path("/proc/self/status"), most_bytes=3)


@pytest.mark.parametrize("at", ["runs", "runs/x", "runs/x/a.txt"])
def test_no_part_of_a_path_below_the_root_is_a_link(root: Path, tmp_path: Path, at: str) -> None:
    """Also if it leads back into the repository."""
    (root / at).rename(root / "moved")
    (root / at).symlink_to(root / "moved")
    with pytest.raises(StorageError, match="link"):
        read_bytes(Path("runs/x/a.txt"))
    with pytest.raises(VerificationError, match="link"):
        require_regular_tree([Path("runs")])
    assert read_own_bytes(Path("runs/x/a.txt")) == b"one\n"


def test_the_root_does_not_move_into_a_data_folder(root: Path, tmp_path: Path) -> None:
    """Neither by folders that are called like data folders, nor for a person who stands in one."""
    (root / "runs" / "x" / "runs").mkdir()
    (root / "runs" / "x" / "mkdocs.yml").write_text("")
    assert trusted_root(Path("runs/x/a.txt")) == str(root)
    os.chdir(root / "runs" / "x")
    assert trusted_root(Path("a.txt")) == str(root)
    (root / ".git").rename(tmp_path / "away")
    os.chdir(root)
    assert trusted_root(Path("runs/x/a.txt")) == str(root)


def test_the_folder_of_ones_own_work_may_be_a_link(root: Path, tmp_path: Path) -> None:
    """Git ignores it, and it is often on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.json").write_text("1\n")
    (root / ".marin-scaling").symlink_to(tmp_path / "disk")
    assert read_bytes(Path(".marin-scaling/a.json")) == b"1\n"


COMPOSED = unicodedata.normalize("NFC", "é.txt")
NAMES = {
    "not UTF-8": [os.fsdecode(b"\xff\xfe.txt")],
    "line end": ["a\nb"],
    "escape": ["\x1b[2J"],
    "right to left": ["a\u202egnp.exe"],
    "isolate": ["a\u2066b"],
    "zero width": ["a\u200bb"],
    "line separator": ["a\u2028b"],
    "delete": ["a\x7f"],
    "case": ["Name.txt", "name.txt"],
    "sharp s": ["stra\u00dfe", "STRASSE"],
    "composition": [COMPOSED, unicodedata.normalize("NFD", COMPOSED)],
    "folder and file": ["Folder", "folder"],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_names_that_systems_read_differently_are_refused(root: Path, names: list[str]) -> None:
    """At any depth, and above a folder; the message can be printed."""
    for place in (root / "runs" / "x", root):
        for name in names:
            (place / name).mkdir()
    with pytest.raises(VerificationError) as refusal:
        require_regular_tree([Path("runs")])
    refusal.value.what.encode("utf-8")
    assert refusal.value.what.splitlines()[0].isprintable()
    for name in names:
        (root / "runs" / "x" / name).rmdir()
    (root / names[-1] / "a.txt").write_text("x")
    with pytest.raises(VerificationError):
        require_regular_tree([Path(names[-1])])


def test_plain_names_of_any_language_are_taken(root: Path) -> None:
    """Letters beyond ASCII, spaces, and signs that only a shell minds."""
    for name in ("Größe.txt", "数据", "a b", "x;y", "ё", COMPOSED):
        (root / "runs" / "x" / name).write_text("x")
    require_regular_tree([Path("runs"), Path("no-such-folder")])


def test_every_fault_is_named_at_once_and_the_list_is_bounded(root: Path) -> None:
    """Twenty, and how many more."""
    for number in range(30):
        (root / "runs" / "x" / f"link-{number:02}").symlink_to("nowhere")
    with pytest.raises(VerificationError) as refusal:
        require_regular_tree([Path("runs"), Path("runs/x")])
    assert refusal.value.what.count("is a link") == 20
    assert "10 more" in refusal.value.what


def test_a_tree_has_a_bounded_depth(root: Path) -> None:
    """Folders in folders would exhaust whoever walks them."""
    deep = root / "runs" / Path(*["d"] * 40)
    deep.mkdir(parents=True)
    with pytest.raises(VerificationError, match="deep"):
        require_regular_tree([Path("runs")])


def test_a_repository_within_a_data_folder_is_refused(root: Path) -> None:
    """A submodule: its files are not the repository's."""
    (root / "runs" / "x" / ".git").write_text("gitdir: ../../.git/modules/x\n")
    with pytest.raises(VerificationError, match="repository"):
        require_regular_tree([Path("runs")])


def test_a_path_is_shown_as_text_that_can_be_printed() -> None:
    """Bytes and signs that are not seen are escapes."""
    assert shown(Path(os.fsdecode(b"a/\xff\x1b\xe2\x80\xae"))) == "a/\\xff\\x1b\\u202e"
