"""Calls of git, from the root of the repository and with no setting that a pull request can change.

Git only reads names and content. It compares nothing, because attributes, filters, ignore rules and index flags come with a
pull request. No call runs a hook or file-system monitor, or opens a pager. Only `fetched` uses a network.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from marin_scaling.errors import MarinScalingError, UsageError, VerificationError
from marin_scaling.printable import COMMITS_SEARCHED, VERSIONS_BYTES, joined
from marin_scaling.untrusted_files import GIT_NAME, program, repository_root

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.pager": "cat",
    "core.warnAmbiguousRefs": "true",
    "safe.bareRepository": "explicit",
}
_OPTIONS = ("--no-pager", "--literal-pathspecs", *(word for item in _SETTINGS.items() for word in ("-c", "=".join(item))))
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",  # no transport: a missing object is an error
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
_TRANSPORT = {"GIT_ALLOW_PROTOCOL": "https:ssh:file", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
"""Variables of `fetched`: transports that run no program named in an address, and none that waits for an answer."""
_OWN_SETTINGS = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Variables that locate a user's settings; only `setting` passes them on."""

_TIMEOUT_SECONDS = 600
_MOST_KEPT_BYTES = 1_000_000
_Answers = dict[tuple[object, ...], subprocess.CompletedProcess[bytes]]
_KEPT: ContextVar[_Answers | None] = ContextVar("answers", default=None)
_BLOB = re.compile(rb"([0-9a-f]+) blob (\d+)")
_MAIN_BRANCHES, _REMOTE_HEAD = ("refs/heads/main", "refs/heads/master"), "refs/remotes/origin/HEAD"
_SHORT = 12
"""Digits of a commit's id in a command."""
NOT_COMMITTED = (
    f"No commit in the history of HEAD holds the right bytes (of the last {COMMITS_SEARCHED} that changed the file). "
    "In a shallow clone, run git fetch --unshallow and try again; else restore the file from your own copy."
)


class GitError(UsageError):
    """A question that git cannot answer, with its `reason`: no git, no repository, or no such commit."""

    def __init__(self, reason: str, *, command: str, at: Path, fix: str = "") -> None:
        super().__init__(f"git {command} failed in {at}: {reason}.", fix=fix or "Rerun the command in the repository.")
        self.reason = reason


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """Ask git each question once within the block, which must change nothing that git reads: one state answers all."""
    token = _KEPT.set({}) if _KEPT.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _KEPT.reset(token)


@dataclass(frozen=True, kw_only=True)
class TreeEntry:
    """A file of a commit: its object id and its mode (`100644`, `100755`, `120000` for a link, `160000` for a submodule)."""

    mode: str
    id: str

    @property
    def is_regular(self) -> bool:
        """Return False for a link or a submodule."""
        return self.mode.startswith("100")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A working tree with its git directory, both found from a trusted folder."""

    root: Path
    git_dir: Path

    def ask(self, *arguments: str, content: bytes = b"") -> bytes:
        """Return the output of a git command with input `content`; `GitError` if it fails."""
        done = _run(self._named(*arguments), at=self.root, content=content)
        if done.returncode:
            raise _failed(arguments[0], _output(done) or f"exit status {done.returncode}", at=self.root)
        return done.stdout

    def commit_id(self, name: str) -> str:
        """Return the id of the commit that a branch, tag or revision names; `GitError` unless exactly one matches.

        The name is passed as input, not on the command line, so that it cannot be an option or a path.
        """
        if not name or not name.isprintable():
            raise _failed("cat-file", f"{name!r} is not the name of a commit", at=self.root)
        done = _run(self._named("cat-file", "--batch-check"), at=self.root, content=os.fsencode(f"{name}^{{commit}}\n"))
        if b"is ambiguous" in done.stderr:
            raise _failed("cat-file", f"{name!r} names both a branch and a tag", at=self.root)
        fields = done.stdout.decode("ascii", errors="replace").rsplit(None, 2)
        if done.returncode or len(fields) != 3 or fields[1] != "commit":
            raise GitError(f"unknown commit {name!r}", command="cat-file", at=self.root, fix=self._named_here(name))
        return fields[0]

    def _named_here(self, unknown: str) -> str:
        """Return the fix for an unknown branch: the branches that exist here, first those of the same name on a remote."""
        listed = self.ask("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes")
        last = unknown.rpartition("/")[2]
        names = sorted(os.fsdecode(listed).split(), key=lambda name: (name.rpartition("/")[2] != last, name))
        here = f"Name a branch that exists here: {joined(names) or 'none'}"
        return f"{here}; or fetch another one (git fetch origin BRANCH) and name FETCH_HEAD."

    def head(self) -> str | None:
        """Return the id of the checked-out commit; None before the first commit."""
        try:
            return self.commit_id("HEAD")
        except GitError:
            return None

    def tree(self, commit: str, folder: Path) -> dict[Path, TreeEntry]:
        """Return every file of a commit at or below `folder`, by its path from the root."""
        below = self.path_from_root(folder)
        places = [] if below == Path() else ["--", str(below)]
        listed = self.ask("ls-tree", "-r", "-z", "--full-tree", commit, *places)
        return dict(_tree_entry(line) for line in listed.split(b"\0") if line)

    def content(self, entry: TreeEntry) -> bytes:
        """Return the bytes of a file of a tree."""
        return self.ask("cat-file", "blob", entry.id)

    def contents(self, entries: Iterable[TreeEntry]) -> Iterator[bytes]:
        """Yield the bytes of several files of a tree, in their order."""
        sought = b"".join(each.id.encode("ascii") + b"\n" for each in entries)
        answer, start = self.ask("cat-file", "--batch", content=sought), 0
        while start < len(answer):  # "ID blob BYTES", the content, an end of line
            begin = answer.index(b"\n", start) + 1
            end = begin + int(answer[start:begin].rpartition(b" ")[2])
            yield answer[begin:end]
            start = end + 1

    def bytes_of(self, entries: Iterable[TreeEntry]) -> int:
        """Return the bytes of several files of a tree together."""
        sought = b"".join(each.id.encode("ascii") + b"\n" for each in entries)
        return sum(int(line.rpartition(b" ")[2]) for line in self.ask("cat-file", "--batch-check", content=sought).splitlines())

    def versions(self, path: Path, *, branch: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the different contents of a file in the history of HEAD, the newest first, each with its last commit.

        With a `branch`, its own commits are searched, without those that it merged. Commits and bytes are bounded; `GitError`
        without a commit, or for a path outside of the repository.
        """
        name = os.fsencode(self.path_from_root(path))
        start = ("--first-parent", branch) if branch else ("--full-history", "HEAD")
        walk = ("rev-list", f"--max-count={COMMITS_SEARCHED}", *start, "--", os.fsdecode(name))
        commits = self.ask(*walk).split()
        sought = b"".join(b"%s:%s\n" % (commit, name) for commit in commits)
        seen, left = set(), VERSIONS_BYTES
        for commit, line in zip(commits, self.ask("cat-file", "--batch-check", content=sought).splitlines(), strict=True):
            found = _BLOB.fullmatch(line)  # none where the commit removed the file
            if found and found[1] not in seen and (left := left - int(found[2])) >= 0:
                seen.add(found[1])
                yield commit.decode("ascii"), self.ask("cat-file", "blob", found[1].decode("ascii"))

    def first_version(self, path: Path, *, branch: str) -> tuple[str, bytes]:
        """Return the commit of a branch itself, without those that it merged, that first had a file, and its content."""
        name = str(self.path_from_root(path))
        commits = self.ask("rev-list", "--first-parent", "--reverse", branch, "--", name).decode("ascii").split()
        first = next(iter(commits), branch)
        return first, self.ask("cat-file", "blob", f"{first}:{name}")

    def tracked(self, folder: Path) -> list[Path]:
        """Return the files at or below `folder` in git's index, by their paths from the root."""
        below = self.path_from_root(folder)
        places = [] if below == Path() else ["--", str(below)]
        listed = self.ask("ls-files", "-z", "--cached", "--full-name", *places)
        return sorted({Path(os.fsdecode(name)) for name in listed.split(b"\0") if name})

    def setting(self, name: str, *options: str) -> str | None:
        """Return one of git's settings for this user and repository; None if not set."""
        return _setting(self._named("config", *options, "--get", name), at=self.root)

    def holds(self, path: Path) -> bool:
        """Return True if a path is in the repository."""
        return Path(os.path.abspath(path)).is_relative_to(self.root)

    def path_from_root(self, path: Path) -> Path:
        """Return a path as git names it; `GitError` if it is outside of the repository."""
        if not self.holds(path):
            raise _failed("ls-files", f"{path} is outside of the repository", at=self.root)
        return Path(os.path.abspath(path)).relative_to(self.root)

    def _named(self, *arguments: str) -> list[str]:
        return [f"--git-dir={self.git_dir}", f"--work-tree={self.root}", *arguments]


def find_repository(start: Path | None = None) -> Repository | None:
    """Return the repository of `start` (default: the current directory); None without `.git` or without git.

    `GitError` if git does not trust the repository, for example because it belongs to another user.
    """
    root = repository_root(start)
    if root is None:
        return None
    try:
        done = _run(["rev-parse", "--absolute-git-dir"], at=root, variables={"GIT_CEILING_DIRECTORIES": str(root.parent)})
    except GitError:
        return None
    found = Path(os.fsdecode(done.stdout.removesuffix(b"\n")))
    if done.returncode or ((root / GIT_NAME).is_dir() and found != Path(os.path.realpath(root / GIT_NAME))):
        raise _failed("rev-parse", _output(done) or f"{root / GIT_NAME} is not a git directory", at=root)
    return Repository(root=root, git_dir=found)


@contextlib.contextmanager
def fetched(address: str, *, commit: str) -> Iterator[Repository]:
    """Yield a temporary repository with one commit of another repository; no file is checked out, and no code of it runs.

    `address` may be a path. `GitError` if it cannot be read, or has no such commit.
    """
    place = os.path.abspath(address) if os.path.isdir(address) else address
    with tempfile.TemporaryDirectory() as name:
        found = Repository(root=Path(name), git_dir=Path(name) / "fetched.git")
        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--", place, commit)
        for arguments in (("init", "--quiet", "--bare", "--template=", str(found.git_dir)), found._named(*fetch)):
            done = _run(arguments, at=found.root, variables=_TRANSPORT)
            if done.returncode:
                fix = f"Check the address and the commit, with all its digits: git ls-remote {shlex.quote(address)}"
                raise GitError(_output(done) or f"exit status {done.returncode}", command="fetch", at=Path.cwd(), fix=fix)
        yield found


def require_repository(start: Path | None = None) -> Repository:
    """Return the repository of `start` (default: the current directory), else raise `GitError`."""
    found = find_repository(start)
    if found is None:
        raise _failed("rev-parse", "no git repository, or git is not installed", at=start or Path.cwd())
    return found


def restoring_command(path: Path, *, fits: Callable[[bytes], bool] = bool, whole: Path | None = None) -> str:
    """Return the command that restores the newest committed content of a file that `fits`; empty if none is found.

    The history of HEAD is searched, in the current directory's repository. `whole` is a folder to restore with the file.
    """
    with contextlib.suppress(GitError):
        for commit, content in found.versions(path) if (found := find_repository()) else ():
            if fits(content):
                return checkout_command(commit[:_SHORT], [whole or path])
    return ""


def restoring(path: Path, *, fits: Callable[[bytes], bool] = bool, whole: Path | None = None) -> str:
    """Return the sentence that tells how to restore the content of a file that `fits`, with the folder `whole`."""
    command = restoring_command(path, fits=fits, whole=whole)
    return f"Restore it: {command}" if command else NOT_COMMITTED


@contextlib.contextmanager
def restored_by(find_command: Callable[[], str]) -> Iterator[None]:
    """Turn errors into refusals that the found command fixes; an error stays as it is if it names one, or none is found."""
    try:
        yield
    except MarinScalingError as error:
        command = ""
        with contextlib.suppress(MarinScalingError):
            command = "" if "git checkout" in error.fix else find_command()
        if not command:
            raise
        fix = f"Restore the recorded bytes and commit them: {command}"
        raise VerificationError(error.lines, why=error.why, fix=fix) from error


def checkout_command(commit: str, paths: Iterable[Path]) -> str:
    """Return the command that restores files and folders as in a commit; paths below the current folder are relative to it.

    >>> checkout_command("origin/main", [Path("runs/tiny"), Path("a b")])
    "git checkout origin/main -- runs/tiny 'a b'"
    """
    here = Path.cwd()
    shown = [path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path for path in paths]
    return shlex.join(["git", "checkout", commit, "--", *map(str, shown)])


def checked_out_commit(folder: Path) -> str | None:
    """Return the id of the commit checked out at `folder`; None outside of a repository or without git."""
    try:
        found = find_repository(folder)
    except GitError:
        return None
    return found.head() if found else None


def current_branch(folder: Path) -> str | None:
    """Return the name of the branch checked out at `folder`; None without a branch, a repository or git."""
    try:
        found = find_repository(folder)
        return os.fsdecode(found.ask("symbolic-ref", "--short", "--quiet", "HEAD")).strip() if found else None
    except GitError:
        return None


def main_branch(folder: Path) -> str | None:
    """Return the name of the branch `main`, else `master`, else of the branch that HEAD of origin names; None without one."""
    try:
        found = find_repository(folder)
        local = found.ask("for-each-ref", "--format=%(refname:lstrip=2)", *_MAIN_BRANCHES) if found else b""
        if local or found is None:
            return os.fsdecode(local).partition("\n")[0] or None
        return (
            os.fsdecode(found.ask("symbolic-ref", "--quiet", _REMOTE_HEAD))
            .strip()
            .removeprefix(_REMOTE_HEAD.removesuffix("HEAD"))
        )
    except GitError:
        return None


def remote_address(folder: Path, *, remote: str = "origin") -> str | None:
    """Return the address of a remote of the repository at `folder`; None if it has none, or without git."""
    try:
        found = find_repository(folder)
        return os.fsdecode(found.ask("remote", "get-url", remote)).strip() if found else None
    except GitError:
        return None


def setting(name: str, *options: str) -> str | None:
    """Return one of git's settings for this user and directory; None if not set, or without git."""
    with contextlib.suppress(GitError):  # in a repository that git does not trust, only the user's settings count
        if found := find_repository():
            return found.setting(name, *options)
    return _setting([f"--git-dir={os.devnull}", "config", *options, "--get", name], at=Path.cwd())


def own_setting(name: str, *options: str) -> str | None:
    """Return a setting of this person or machine; a repository's own settings are not asked. None where it is not set."""
    for scope in ("--global", "--system"):
        arguments = [f"--git-dir={os.devnull}", "config", scope, "--includes", *options, "--get", name]
        if found := _setting(arguments, at=Path.cwd()):
            return found
    return None


def _setting(arguments: Sequence[str], *, at: Path) -> str | None:
    own = {name: os.environ[name] for name in _OWN_SETTINGS if name in os.environ}
    try:
        answer = _run(arguments, at=at, variables=own)
    except GitError:
        return None
    return os.fsdecode(answer.stdout).strip() or None if answer.returncode == 0 else None


def _run(
    arguments: Sequence[str], *, at: Path, content: bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    answers, question = _KEPT.get(), (*arguments, at, content, *sorted((variables or {}).items()))
    if answers is not None and question in answers:
        return answers[question]
    done = _started(arguments, at=at, content=content, variables=variables or {})
    if answers is not None and len(done.stdout) <= _MOST_KEPT_BYTES:
        answers[question] = done
    return done


def _started(
    arguments: Sequence[str], *, at: Path, content: bytes, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, **_ENVIRONMENT, **variables}
    try:
        return subprocess.run(
            ["git", *_OPTIONS, *arguments],
            executable=program("git"),
            cwd=at,
            env=environment,
            input=content,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _failed(arguments[-1], str(error), at=at) from error


def _tree_entry(line: bytes) -> tuple[Path, TreeEntry]:
    about, name = line.split(b"\t", maxsplit=1)
    mode, _, identity = about.decode("ascii").split()
    return Path(os.fsdecode(name)), TreeEntry(mode=mode, id=identity)


def _output(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode(errors="replace").strip().partition("\n")[0]


def _failed(command: str, reason: str, *, at: Path) -> GitError:
    return GitError(reason, command=command, at=at)


_OF_SSH = re.compile(r"(?:ssh://)?(?:[^@/\s]+@)(?P<host>[^:/\s]+)(?::\d+/|[:/])(?P<path>[^\s]+?)(?:\.git)?/?")
_OF_HTTPS = re.compile(r"https://(?:[^@/\s]+@)?(?P<host>[^/\s]+)/(?P<path>[^\s?#]+?)(?:\.git)?/?")


def address_on_the_web(folder: Path) -> str | None:
    """Return the page of the origin of the repository at `folder`; None where it has none, or git is not there."""
    remote = remote_address(folder)
    return page_of_remote(remote) if remote else None


def page_of_remote(remote: str) -> str | None:
    """Return the page that belongs to the address of a remote, without any account in it; None of a folder.

    >>> page_of_remote("git@example.org:lab/forecasts.git"), page_of_remote("https://ada:key@example.org/lab/forecasts")
    ('https://example.org/lab/forecasts', 'https://example.org/lab/forecasts')
    """
    match = _OF_HTTPS.fullmatch(remote) or _OF_SSH.fullmatch(remote)
    return f"https://{match['host']}/{match['path']}" if match else None
