"""Two workflows review a pull request: one reads a stranger's files and may write nothing, one may write and reads none."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin_scaling.publish.build import make_user_repository

ROOT = Path(__file__).parents[3]
FOLDERS = ("template", "own")


def workflow(name: str, where: str, tmp_path: Path) -> dict[str, Any]:
    """As it is in a new repository of a user, or in this one."""
    root = ROOT
    if where == "template":
        make_user_repository(tmp_path)
        root = tmp_path
    document: dict[str, Any] = yaml.load((root / ".github" / "workflows" / f"{name}.yml").read_text(), yaml.BaseLoader)
    return document


@pytest.mark.parametrize("where", FOLDERS)
def test_who_reads_a_strangers_files_may_only_read(where: str, tmp_path: Path) -> None:
    """No right to write, no token left in the working tree, no event that would give it secrets."""
    review = workflow("preregistration", where, tmp_path)
    assert review["permissions"] == {"contents": "read"}
    assert review["on"] == "pull_request"
    (job,) = review["jobs"].values()
    assert "permissions" not in job
    assert job["steps"][0]["with"]["persist-credentials"] == "false"
    assert "secrets" not in json.dumps(review)


@pytest.mark.parametrize("where", FOLDERS)
def test_who_may_write_runs_nothing_of_a_strangers(where: str, tmp_path: Path) -> None:
    """It checks nothing out, runs no shell, and follows the other one."""
    comment = workflow("preregistration-comment", where, tmp_path)
    assert comment["permissions"] == {}
    assert comment["on"]["workflow_run"]["workflows"] == [workflow("preregistration", where, tmp_path)["name"]]
    (job,) = comment["jobs"].values()
    assert job["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert all("run" not in step and "checkout" not in step["uses"] for step in job["steps"])


def test_a_stranger_says_nothing_of_which_tool_reviews(tmp_path: Path) -> None:
    """Users install from the address in a variable of the repository; here from the base branch; all else is the same."""
    theirs, ours = (workflow("preregistration", where, tmp_path) for where in FOLDERS)
    user, own = (each["jobs"]["review"]["steps"].pop(2) for each in (theirs, ours))
    assert theirs == ours
    assert user["env"] == {"SOURCE": "${{ vars.MARIN_SCALING }}"}
    assert user["run"].endswith('pip install "marin-scaling[timestamp]@$SOURCE"\n')
    assert own["run"].startswith('git worktree add ../base "origin/$GITHUB_BASE_REF" && pip install')


@pytest.mark.parametrize("where", FOLDERS)
def test_what_is_attested_is_the_log_after_its_merge_and_nothing_is_run(where: str, tmp_path: Path) -> None:
    """No pull request starts it, no shell is in it, and of a private repository nothing is published."""
    attest = workflow("preregistration-attest", where, tmp_path)
    assert attest["on"] == {"push": {"branches": ["main"], "paths": ["preregistrations/log.jsonl"]}}
    assert attest["permissions"] == {}
    (job,) = attest["jobs"].values()
    assert job["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    assert job["if"] == "${{ !github.event.repository.private }}"
    assert all("run" not in step for step in job["steps"])
    assert job["steps"][-1]["with"] == {"subject-path": "preregistrations/log.jsonl"}


PULL = {"number": 7, "head": {"sha": "abc"}}
FORGE = """
const done = [];
const context = {repo: {owner: 'o', repo: 'r'}, payload: {workflow_run: {
  head_sha: 'abc', head_branch: 'b', head_repository: {owner: {login: 'stranger'}}}}};
const github = {
  paginate: async () => COMMENTS,
  rest: {
    pulls: {list: async asked => ({data: asked.head === 'stranger:b' ? [PULL] : []})},
    issues: {
      listComments: null,
      updateComment: async said => done.push(['update', said]),
      createComment: async said => done.push(['create', said]),
    },
  },
};
(async () => { SCRIPT })().then(() => console.log(JSON.stringify(done)));
"""


def comment_program(comments: list[Any], pull: Any) -> str:
    """The script of the second workflow, with a forge that stands in."""
    (job,) = workflow("preregistration-comment", "own", ROOT)["jobs"].values()
    script = job["steps"][1]["with"]["script"]
    return FORGE.replace("COMMENTS", json.dumps(comments)).replace("[PULL]", json.dumps([pull])).replace("SCRIPT", script)


def comment(tmp_path: Path, *, review: str, comments: list[Any], pull: Any = PULL) -> list[Any]:
    """What the script of the second workflow does, where a forge stands in that has one pull request."""
    (tmp_path / "review").mkdir(exist_ok=True)
    (tmp_path / "review" / "review.md").write_text(review)
    done = subprocess.run(
        ["node", "-e", comment_program(comments, pull)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout)
    return found


needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
OWN = {"id": 3, "user": {"type": "Bot"}, "body": "<!-- marin-scale review -->\nold"}


@needs_node
def test_the_review_becomes_one_comment(tmp_path: Path) -> None:
    """Of the pull request whose last commit was reviewed."""
    ((what, said),) = comment(tmp_path, review="# Review\n", comments=[])
    assert (what, said["issue_number"]) == ("create", 7)
    assert said["body"].startswith("<!-- marin-scale review -->\n> ")
    assert "abc" in said["body"].splitlines()[1]
    assert said["body"].endswith("\n\n# Review\n")


@needs_node
def test_the_next_review_takes_its_place(tmp_path: Path) -> None:
    """A comment that a person wrote with the same first line is left alone."""
    theirs = {**OWN, "id": 2, "user": {"type": "User"}}
    ((what, said),) = comment(tmp_path, review="# Review\n", comments=[theirs, OWN])
    assert (what, said["comment_id"]) == ("update", 3)


@needs_node
def test_a_strangers_text_mentions_nobody_and_has_an_end(tmp_path: Path) -> None:
    """Whoever sends a pull request can put anything into what its workflow leaves."""
    ((_, said),) = comment(tmp_path, review="@everyone\x1b[31m\u202e " + "x" * 100_000, comments=[])
    assert "@everyone" not in said["body"]
    assert not {"\x1b", "\u202e"} & set(said["body"])
    assert len(said["body"]) < 65_536


@needs_node
def test_a_pull_request_that_went_on_is_not_commented(tmp_path: Path) -> None:
    """The next review is under way."""
    assert comment(tmp_path, review="# Review\n", comments=[], pull={"number": 7, "head": {"sha": "def"}}) == []


@needs_node
@pytest.mark.parametrize("form", ["a link", "a folder", "too large"])
def test_only_a_plain_file_of_a_bounded_size_is_commented(form: str, tmp_path: Path) -> None:
    """The pull request's workflow decides what is in the artifact."""
    folder = tmp_path / "review"
    folder.mkdir()
    if form == "a link":
        (folder / "review.md").symlink_to("/etc/hostname")
    elif form == "a folder":
        (folder / "review.md").mkdir()
    else:
        (folder / "review.md").write_bytes(b"x" * 1_000_001)
    done = subprocess.run(["node", "-e", comment_program([], PULL)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
