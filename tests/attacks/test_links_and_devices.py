"""Attacks with what is no regular file: links out of the repository or to another folder of it, devices, and pipes.

Nothing that they lead to is read, published or compared, and no command waits for their end.
"""

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from command_line import LADDER, marin_scale
from forgery import edit, said_by
from git_repository import branch_off, commit
from hostile_repository import forged_copy, lay_repository, telling_program
from registration_factory import CREATED_AT, store_run
from typer.testing import CliRunner

from marin_scaling.cli.app import app
from marin_scaling.errors import MarinScalingError
from marin_scaling.experiment.experiment import read_experiments
from marin_scaling.ladder.config import read_ladder_file
from marin_scaling.preregistration.log import write_down
from marin_scaling.preregistration.register import Registration
from marin_scaling.preregistration.registry import signers_path
from marin_scaling.preregistration.verify.authenticity import verify_folder
from marin_scaling.preregistration.verify.rules import policy_steps
from marin_scaling.publish.build import build_site, make_user_repository
from marin_scaling.run.table import read_run_table
from marin_scaling.run.trackers import read_tracked_runs

SECRET = "SECRET-9f3a"
ENDLESS = Path("/dev/zero")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of the repository, which is the current directory; what lies beside it is not the stranger's."""
    (tmp_path / "root").mkdir()
    monkeypatch.chdir(tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the reader's, outside of the repository."""
    path = tmp_path / "secret.txt"
    path.write_text(f"{SECRET} line one\n{SECRET}: [line two\n")
    return path


@pytest.fixture
def branch(root: Path, registration: Registration) -> Path:
    """A branch off a main whose forecast was missed."""
    store_run(root / "runs", spec=registration.target, loss=2.9, day="2026-11-21")
    write_down(registration.folder.parent, at=CREATED_AT + timedelta(days=2))
    assert "missed" in said_by("check", root)[1]
    branch_off(root)
    return root


def _to_nothing(root: Path) -> None:
    (root / "preregistrations").rename(root / "old")
    (root / "empty").mkdir()
    (root / "preregistrations").symlink_to("empty")


def _runs_to_nothing(root: Path) -> None:
    (root / "runs").rename(root / "old")
    (root / "empty").mkdir()
    (root / "runs").symlink_to("empty")


def _runs_to_better_ones(root: Path) -> None:
    shutil.copytree(root / "runs", root / "better")
    for record in (root / "better").rglob("record.json"):
        edit(record, lambda document: document.update(loss=2.5))
    (root / "runs").rename(root / "old")
    (root / "runs").symlink_to("better")


def _registry_elsewhere(root: Path) -> None:
    shutil.move(root / "preregistrations", root / "p2")
    (root / "preregistrations").symlink_to(root / "p2")


def _registry_dangling(root: Path) -> None:
    shutil.rmtree(root / "preregistrations")
    (root / "preregistrations").symlink_to("nowhere")


def _ladder_elsewhere(root: Path) -> None:
    shutil.move(root / "runs" / "tiny", root / "tiny")
    (root / "runs" / "tiny").symlink_to("../tiny")


@pytest.mark.parametrize("command", ["verify", "check", "review"])
@pytest.mark.parametrize(
    "lay",
    [_to_nothing, _runs_to_nothing, _runs_to_better_ones, _registry_elsewhere, _registry_dangling, _ladder_elsewhere],
    ids=lambda lay: lay.__name__,
)
def test_a_registry_or_run_store_that_is_a_link_is_refused(branch: Path, lay: Callable[[Path], None], command: str) -> None:
    """It could be one folder for the base and another for the reader."""
    lay(branch)
    commit(branch)
    arguments = {"verify": ("all", "--no-refit", "--base", "main"), "check": ("all",), "review": ("--base", "main")}
    done = CliRunner().invoke(app, [command, *arguments[command]])
    if command == "review":  # which says it as Markdown
        assert done.exit_code == 1
        assert "is a link" in done.stdout
    else:
        assert isinstance(done.exception, MarinScalingError), done.output
        assert done.exception.exit_status == 1
        assert "is a link" in done.exception.what


def test_a_link_above_the_registry_is_refused(branch: Path) -> None:
    """Every part of the path below the root counts."""
    (branch / "real").mkdir()
    for name in ("preregistrations", "runs"):
        shutil.move(branch / name, branch / "real" / name)
    (branch / "data").symlink_to("real")
    place = ("--registry", "data/preregistrations", "--runs", "data/runs")
    for command in (("verify", "all", "--no-refit", "--base", "main"), ("check", "all")):
        done = marin_scale(*command, *place, cwd=branch)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "data is a link" in done.stderr


LINKS = [
    "runs/x/SOURCE.md",
    "runs/x/heldout.csv",
    "runs/x/runs.csv",
    "runs/tiny/0123456789abcdef/record.json",
    "ladders/x.yaml",
    "experiments/x/experiment.yaml",
    "experiments/x.jsonl",
    "speedruns/a/submission.json",
    "speedruns/tracks/x.yaml",
    "preregistrations/public-record.csv",
    "preregistrations/policy.yaml",
    "recipes/x.yaml",
    "site/x.md",
    "site/assets/x.txt",
]


@pytest.mark.parametrize("target", ["secret", "/proc/self/environ", "../../.git/config", "/dev/zero", "nowhere"])
@pytest.mark.parametrize("name", LINKS)
def test_a_site_publishes_nothing_that_a_link_leads_to(root: Path, secret: Path, name: str, target: str) -> None:
    """The build is refused, and names the link."""
    make_user_repository(root)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(secret if target == "secret" else target)
    with pytest.raises(MarinScalingError) as refusal:
        build_site(root)
    assert f"{name} is a link" in refusal.value.what
    assert not (root / ".site").exists()


@pytest.mark.parametrize("name", ["runs", "runs/x", "site", "ladders", "experiments/x", "mkdocs.yml"])
def test_a_site_follows_no_linked_folder(root: Path, secret: Path, name: str) -> None:
    """All links are named at once, and so is a pipe."""
    make_user_repository(root)
    path = root / name
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(secret.parent)
    (root / "speedruns").mkdir()
    os.mkfifo(root / "speedruns" / "pipe.json")
    with pytest.raises(MarinScalingError) as refusal:
        build_site(root)
    assert f"{name} is a link" in refusal.value.what
    assert "speedruns/pipe.json is a pipe" in refusal.value.what


@contextlib.contextmanager
def _no_endless_memory() -> Iterator[None]:
    """Let this process grow by 2 GiB at most."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * 1024**3, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("speedruns/a/submission.json", ("speedrun", "validate", "speedruns")),
        ("speedruns/tracks/x.yaml", ("speedrun", "validate", "speedruns")),
        ("experiments/x/experiment.yaml", ("experiment", "validate")),
        ("experiments/x.jsonl", ("experiment", "validate")),
        ("ladders/x.yaml", ("ladder", "ladders/x.yaml")),
        ("preregistrations/allowed_signers", ("verify", "all", "--no-refit")),
        ("preregistrations/policy.yaml", ("verify", "all", "--no-refit")),
        ("preregistrations/log.jsonl", ("registry", "log")),
        ("runs/tiny/0123456789abcdef/record.json", ("check", "all")),
        ("runs/x/runs.csv", ("fit", "runs/x")),
        ("runs.csv", ("fit", "runs.csv")),
    ],
)
def test_an_endless_device_is_not_read(root: Path, registration: Registration, name: str, command: tuple[str, ...]) -> None:
    """A message names it, without a traceback; the status is that of a refusal."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(ENDLESS)
    (root / "speedruns").mkdir(exist_ok=True)
    with _no_endless_memory():
        done = marin_scale(*command, cwd=root)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "is a link" in done.stdout + done.stderr


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to(ENDLESS)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "ladder": ("ladders/x.yaml", read_ladder_file),
    "experiment": ("experiments/x.jsonl", lambda path: _refused_one(path.parent)),
    "table": ("runs.csv", read_run_table),
    "columns": ("runs.parquet", read_run_table),
    "tracker": ("runs/x/tracker_metrics.jsonl", lambda path: read_tracked_runs(str(path))),
}


def _refused_one(folder: Path) -> None:
    """Raise what a reader keeps that does not raise: the refusal of the one experiment."""
    (found,) = read_experiments(folder)
    assert found.experiment is None
    raise MarinScalingError(found.refusal, why="", fix="")


@pytest.mark.parametrize("lay", [_pipe, _folder, _link, _dangling], ids=lambda lay: lay.__name__)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_an_error_and_never_absent(root: Path, reader: str, lay: Callable[[Path], None]) -> None:
    """A pipe does not hang its reader either."""
    name, read = READERS[reader]
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    lay(root / name)
    with pytest.raises(MarinScalingError):
        read(Path(name))


@pytest.mark.parametrize("lay", [_pipe, _folder, _link, _dangling], ids=lambda lay: lay.__name__)
def test_a_policy_that_is_no_file_is_not_no_policy(registration: Registration, lay: Callable[[Path], None]) -> None:
    """Whoever lays it there would take away what the registry asks for."""
    verified = verify_folder(registration.folder, allowed_signers=signers_path(registration.folder))
    lay(registration.folder.parent / "policy.yaml")
    with pytest.raises(MarinScalingError):
        policy_steps(verified)


def test_a_table_that_a_person_names_is_read_wherever_it_lies(root: Path, tmp_path: Path) -> None:
    """Outside of every repository only the file itself must be one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "runs.csv").write_text("flops,params,tokens,loss\n" + "1e18,1e8,1e9,3.1\n" * 4)
    (tmp_path / "linked").symlink_to("real")
    assert len(read_run_table(tmp_path / "linked" / "runs.csv").frame)
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "runs.csv")
    with pytest.raises(MarinScalingError):
        read_run_table(tmp_path / "link.csv")
    with pytest.raises(MarinScalingError):
        read_run_table(Path("/dev/stdin"))


def test_a_recipe_file_rests_on_no_file_outside(root: Path, secret: Path) -> None:
    """Its base is a path that a stranger writes."""
    (root / "ladders").mkdir()
    (secret.parent / "far.yaml").write_text(f"{SECRET}: 1\n")
    (root / "ladders" / "x.yaml").write_text("name: x\nbase: ../../far.yaml\n")
    (root / "ladders" / "tiny.yaml").write_text(LADDER.replace("recipe: quickstart", "recipe: ladders/x.yaml"))
    done = marin_scale("ladder", "ladders/tiny.yaml", cwd=root)
    assert done.returncode == 2, done.stdout
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.site
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_hostile_repository_starts_no_program_and_opens_nothing_outside(branch: Path, secret: Path, tmp_path: Path) -> None:
    """Seen by the calls to the system of verify, review and the site's build: programs, and files that were opened."""
    program, mark = telling_program(tmp_path)
    forged = forged_copy(branch, tmp_path / "forged")
    for place in ("preregistrations", "runs", "."):
        lay_repository(branch / place, forged=forged, program=program)
    make_user_repository(branch)
    commit(branch)
    clean = [_traced(branch, tmp_path, *command) for command in COMMANDS]
    (branch / "runs" / "tiny" / "SOURCE.md").symlink_to(secret)
    (branch / "preregistrations" / "policy.yaml").unlink()
    (branch / "preregistrations" / "policy.yaml").symlink_to(secret)
    (branch / "site" / "x.md").symlink_to(secret)
    linked = [_traced(branch, tmp_path, *command) for command in COMMANDS]
    for calls in (*clean, *linked):
        programs = {line.split('"')[1].rsplit("/", 1)[1] for line in calls if "execve(" in line and line.endswith("= 0")}
        assert {each for each in programs if not each.startswith("python")} <= {"git", "marin-scale"}, programs
        opened = [line for line in calls if "openat(" in line and "= -1" not in line]
        assert opened
        assert not [line for line in opened if secret.name in line or str(forged) in line or ("SOURCE.md" in line)]
    assert not mark.exists()


COMMANDS = (("verify", "all", "--no-refit", "--base", "main"), ("review", "--base", "main"), ("site", "build"))


def _traced(root: Path, folder: Path, *arguments: str) -> list[str]:
    """The calls of one command that start programs or open files; it must end with a refusal."""
    trace = folder / "trace.txt"
    words = ["strace", "-f", "-y", "-e", "trace=execve,openat", "-o", str(trace), "marin-scale", *arguments]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False, timeout=600)
    assert "Traceback" not in done.stderr, done.stderr
    if arguments[0] != "site":
        assert done.returncode == 1, done.stdout + done.stderr
    return [line.strip() for line in trace.read_text(errors="replace").splitlines()]
