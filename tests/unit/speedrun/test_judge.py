"""Submissions of a repository: against its own run records, and a copy against its original."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import marin_scale
from git_repository import commit, git
from registration_factory import run_spec, store_run
from submission_factory import retrained, submission, submission_document

from marin_scaling.errors import Severity
from marin_scaling.git import GitError, require_repository
from marin_scaling.run.store import read_run
from marin_scaling.speedrun.from_runs import submission_from_runs
from marin_scaling.speedrun.judge import changed_entries, judge_all, judge_new
from marin_scaling.speedrun.submission import (
    CONFIRMATION_NAME,
    Author,
    Submission,
    read_submissions,
    write_confirmation,
    write_submission,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)


def trained(root: Path) -> Submission:
    """The submission of a run that the store of `root` records with 2.5 bits per byte."""
    times = {"started_at": "2026-11-19T10:00:00Z", "finished_at": "2026-11-19T10:00:05Z", "wall_seconds": 4.0}
    folder = store_run(root / "runs", spec=run_spec(), loss=2.5, step_seconds=3.0, **times)
    return submission_from_runs(
        [read_run(folder)], name="cpu/mine", track="cpu", author=Author(name="Ada"), description="", trials=1
    )


def refused(root: Path, *, base: str | None = None) -> dict[str, set[str]]:
    """The codes of the errors of each submission that is refused."""
    found = judge_all(root / "speedruns", at=NOW, base=base).validated
    return {
        each.submission.name: {one.code for one in each.findings if one.severity == "error"}
        for each in found
        if not each.accepted
    }


@pytest.mark.parametrize(("key", "value"), [("bits_per_byte", 1.5), ("training_seconds", 1.0), ("seed", 7)])
def test_a_figure_that_differs_from_the_record_of_its_log_is_refused(tmp_path: Path, key: str, value: float) -> None:
    """With both figures and the record's folder."""
    document = trained(tmp_path).model_dump(mode="json", exclude_none=True)
    document["seeds"][0][key] = value
    changed = Submission.model_validate_json(json.dumps(document))
    write_submission(tmp_path / "speedruns", changed)
    (judged,) = judge_all(tmp_path / "speedruns", at=NOW).validated
    (error,) = [each for each in judged.findings if each.severity == "error"]
    assert (error.code, error.where) == ("record", f"seeds.{key}")
    assert f"{value:g} is stated" in error.message
    assert str(tmp_path / "runs" / "tiny") in error.message
    assert judge_new(changed, to=tmp_path / "elsewhere" / "speedruns", at=NOW).accepted


ROOT = Path(__file__).parents[3]
OWN = ("cpu/dense-24", "bytes-moe/rung-1.2e11-width-16")
SETTINGS = {
    "training.config.learning_rate": 1e-4,
    "training.config.recipe": "delphi",
    "data.unique_tokens": 10**12,
    "data.name": "another text",
    "data.digest": "0" * 64,
    "model.config.hidden_dim": 4096,
    "model.params_active": 1,
    "compute.hardware.chips": 1024,
    "compute.hardware.kind": "h100",
}


@pytest.fixture(params=OWN)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a submission of this repository, beside its runs and tracks."""
    name = request.param
    runs = f"speedrun-{name.replace('/', '-')}" if name.startswith("cpu/") else name.partition("/")[0]
    for place in (f"speedruns/{name}", "speedruns/tracks", f"runs/{runs}"):
        shutil.copytree(ROOT / place, tmp_path / place)
    return tmp_path / "speedruns" / name / "submission.json"


def contradictions(path: Path) -> dict[str, str]:
    """Message of each error that a record gives, by key."""
    (judged,) = judge_all(path, at=NOW).validated
    return {each.where: each.message for each in judged.findings if (each.code, each.severity) == ("record", Severity.ERROR)}


@pytest.mark.parametrize(("key", "value"), SETTINGS.items(), ids=SETTINGS)
def test_a_setting_that_differs_from_the_run_of_its_log_is_refused(own: Path, key: str, value: object) -> None:
    """With the key, both values and the run's folder."""
    assert contradictions(own) == {}
    document = json.loads(own.read_bytes())
    *above, last = key.split(".")
    part = document
    for name in above:
        part = part[name]
    recorded, part[last] = part[last], value
    own.write_text(json.dumps(document))
    message = contradictions(own)[key]
    assert all(said in message for said in (f"{value} is stated", str(recorded), str(own.parents[3] / "runs")))


def test_the_author_may_leave_out_settings_and_add_others(own: Path) -> None:
    """And state the machine's name and its peak."""
    document = json.loads(own.read_bytes())
    document["training"]["config"] = {"my own name": 1}
    document["model"]["config"] = {}
    document["compute"]["hardware"] |= {"name": "my machine", "peak_flops_per_second": 1e14}
    del document["absent"]["compute.hardware.peak_flops_per_second"]
    own.write_text(json.dumps(document))
    assert contradictions(own) == {}


@pytest.mark.parametrize("damage", ["missing", "another spec"])
def test_a_record_without_its_spec_vouches_for_nothing(own: Path, damage: str) -> None:
    """The settings could not be compared."""
    runs = own.parents[3] / "runs"
    for spec in runs.glob("*/*/spec.json"):
        if damage == "missing":
            spec.unlink()
        else:
            spec.write_bytes(spec.read_bytes().replace(b'"hidden_dim": ', b'"hidden_dim": 1'))
    assert "spec.json" in contradictions(own)["seeds.log_sha256"]


def test_every_submission_of_this_repository_agrees_with_its_runs() -> None:
    """None is refused, and all have a record."""
    found = judge_all(ROOT / "speedruns", at=datetime.now(UTC)).validated
    assert found
    assert [each.submission.name for each in found if not each.accepted or not each.recorded] == []


def test_a_submission_of_its_own_record_is_accepted(tmp_path: Path) -> None:
    """All figures agree."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    assert refused(tmp_path) == {}


def warnings(root: Path) -> dict[str, list[tuple[str, str]]]:
    """The code and message of each warning by submission, without that of the missing track."""
    return {
        each.submission.name: [
            (one.code, one.message) for one in each.findings if one.severity is Severity.WARNING and one.code != "track"
        ]
        for each in judge_all(root / "speedruns", at=NOW).validated
    }


def test_a_submission_without_a_record_here_is_self_reported(tmp_path: Path) -> None:
    """Accepted with a warning, and its level of verification names the missing record; with the record it does not."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    (judged,) = judge_all(tmp_path / "speedruns", at=NOW).validated
    assert (judged.recorded, judged.verification) == (True, "self-reported")
    shutil.rmtree(tmp_path / "runs")
    (judged,) = judge_all(tmp_path / "speedruns", at=NOW).validated
    assert judged.accepted
    assert (judged.recorded, judged.verification) == (False, "self-reported, no record here")
    ((code, message),) = warnings(tmp_path)["cpu/mine"]
    assert code == "no-record"
    assert "1 of 1" in message


ENTRY = """\
name: cpu/mine
track: cpu
author: {name: Ada}
recipe: recipes/mine.yaml
budget_flops: 1.0e+10
hidden_dim: 12
seeds: [0]
trials: 1
"""
FILES = {
    "speedruns/entries/mine.yaml": ENTRY,
    "recipes/mine.yaml": "name: mine\nbase: above.yaml\nconstants: {tokens_per_param: 21}\n",
    "recipes/above.yaml": "name: above\nbase: quickstart\nconstants: {tokens_per_param: 20}\n",
    "speedruns/tracks/cpu.yaml": "name: cpu\ntitle: x\nseeds_at_least: 2\nretrained_by_ci: true\n",
}


def with_entry(root: Path, *, path: str = "speedruns/entries/mine.yaml") -> None:
    """A submission that says to be trained from an entry, with the files that the entry needs."""
    document = trained(root).model_dump(mode="json", exclude_none=True)
    document["code"] = {"path": path, "command": f"marin-scale speedrun run {path}"}
    document["absent"] = {key: why for key, why in document["absent"].items() if key not in ("code.path", "code.command")}
    document["absent"] |= {"code.commit": "not kept"}
    write_submission(root / "speedruns", Submission.model_validate_json(json.dumps(document)))
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("missing", ["speedruns/entries/mine.yaml", "recipes/mine.yaml"])
def test_a_missing_entry_or_recipe_file_is_a_warning_that_names_it(tmp_path: Path, missing: str) -> None:
    """Nobody could retrain the submission."""
    with_entry(tmp_path)
    assert warnings(tmp_path) == {"cpu/mine": []}
    (tmp_path / missing).unlink()
    ((code, message),) = warnings(tmp_path)["cpu/mine"]
    assert code == "entry"
    assert missing in message


@pytest.mark.parametrize("path", ["../outside.yaml", "/etc/passwd"])
def test_an_entry_outside_of_the_repository_is_not_read(tmp_path: Path, path: str) -> None:
    """Its content would be shown; `confirm` takes such a submission for one without an entry."""
    (tmp_path / "outside.yaml").write_text("secret")
    with_entry(tmp_path / "root", path=path)
    assert warnings(tmp_path / "root") == {"cpu/mine": []}


def test_an_entry_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    """It could lead to any file of the machine; the finding names the link and shows none of its target."""
    (tmp_path / "outside.yaml").write_text("secret: 1")
    root = tmp_path / "root"
    with_entry(root, path="docs/entry.yaml")
    git(root, "init", "-q", "-b", "main")
    (root / "docs").mkdir()
    (root / "docs" / "entry.yaml").symlink_to(tmp_path / "outside.yaml")
    ((code, message),) = warnings(root)["cpu/mine"]
    assert code == "entry"
    assert "docs/entry.yaml" in message
    assert "secret" not in message


@pytest.mark.parametrize("changed", [None, *FILES, "speedruns/cpu/mine/submission.json", "README.md"])
def test_an_entry_changes_with_each_file_that_determines_it(tmp_path: Path, changed: str | None) -> None:
    """Submission, entry, track, and recipe with its base; another file of the repository changes nothing."""
    with_entry(tmp_path)
    (tmp_path / "README.md").write_text("x")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    if changed:
        path = tmp_path / changed
        path.write_bytes(path.read_bytes() + b"\n")
    repository, place = require_repository(tmp_path), tmp_path / "speedruns"
    found = changed_entries(read_submissions(place), place=place, repository=repository, base=repository.commit_id("main"))
    assert [each.place for each in found] == ([] if changed in (None, "README.md") else [place / "cpu/mine/submission.json"])


def test_a_new_recipe_file_that_a_base_may_name_changes_its_entry(tmp_path: Path) -> None:
    """It can take the place of a built-in recipe's name."""
    with_entry(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    (tmp_path / "recipes" / "new.yaml").write_text("name: new\n")
    repository, place = require_repository(tmp_path), tmp_path / "speedruns"
    assert changed_entries(read_submissions(place), place=place, repository=repository, base=repository.commit_id("main"))


def copied(root: Path, *, name: str) -> None:
    """The submission once more, by another name."""
    write_submission(root / "speedruns", trained_again(root).model_copy(update={"name": name}))


def trained_again(root: Path) -> Submission:
    """The submission that lies there."""
    (found,) = [each.submission for each in judge_all(root / "speedruns", at=NOW).found]
    assert found is not None
    return found


@pytest.mark.parametrize("committed", [True, False])
def test_of_a_copy_and_its_original_the_one_on_the_main_branch_is_accepted(tmp_path: Path, committed: bool) -> None:
    """Though the copy's name comes first."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    git(tmp_path, "checkout", "-qb", "more")
    copied(tmp_path, name="aaa/copy")
    if committed:
        commit(tmp_path)
    assert refused(tmp_path) == {"aaa/copy": {"duplicate"}}
    assert refused(tmp_path, base="main") == {"aaa/copy": {"duplicate"}}


def test_a_copy_whose_branch_is_older_than_the_original_is_refused(tmp_path: Path) -> None:
    """It was committed first on its own branch, into which main was merged then."""
    (tmp_path / "README.md").write_text("x")
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    git(tmp_path, "checkout", "-qb", "more")
    original = trained(tmp_path)
    write_submission(tmp_path / "speedruns", original.model_copy(update={"name": "aaa/copy"}))
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    write_submission(tmp_path / "speedruns", original)
    commit(tmp_path)
    git(tmp_path, "checkout", "-q", "more")
    git(tmp_path, "merge", "-q", "main", "-m", "main")
    assert refused(tmp_path) == {"aaa/copy": {"duplicate"}}


def test_of_two_on_one_branch_the_one_that_was_added_first_is_accepted(tmp_path: Path) -> None:
    """By the order of commits, whatever their dates."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    copied(tmp_path, name="aaa/copy")
    commit(tmp_path)
    assert refused(tmp_path) == {"aaa/copy": {"duplicate"}}


def test_a_base_that_is_not_there_is_refused_with_the_branches_that_are(tmp_path: Path) -> None:
    """A mistyped branch must not pass for an empty one. A fetched branch exists only below its remote."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    git(tmp_path, "update-ref", "refs/remotes/origin/release", "HEAD")
    for wrong, meant in (("mian", "main"), ("release", "origin/release")):
        with pytest.raises(GitError) as error:
            refused(tmp_path, base=wrong)
        assert "FETCH_HEAD" in error.value.fix
        assert repr(wrong) in error.value.what
        assert meant in error.value.fix


def test_a_named_base_needs_a_repository(tmp_path: Path) -> None:
    """Without one, nothing could be compared, and a silent answer would look like a check."""
    write_submission(tmp_path / "speedruns", trained(tmp_path))
    with pytest.raises(GitError):
        refused(tmp_path, base="main")


def test_without_a_base_branch_no_copy_is_told_from_its_original(tmp_path: Path) -> None:
    """A shallow clone of a branch has neither a base nor a history: the message does not accuse the one that comes second."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    write_submission(origin / "speedruns", trained(origin))
    git(origin, "init", "-q", "-b", "main")
    commit(origin)
    git(origin, "checkout", "-qb", "more")
    copied(origin, name="aaa/copy")
    commit(origin)
    git(origin, "checkout", "-q", "main")
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "more", f"file://{origin}", str(clone))
    found = judge_all(clone / "speedruns", at=NOW)
    assert "origin/main" in found.warning
    (message,) = [one.message for each in found.validated for one in each.findings if one.code == "duplicate"]
    assert "unknown" in message
    git(clone, "fetch", "-q", "--depth", "1", "origin", "main")
    assert refused(clone, base="FETCH_HEAD") == {"aaa/copy": {"duplicate"}}
    assert judge_all(clone / "speedruns", at=NOW, base="FETCH_HEAD").warning == ""


BY = "https://example.org/runs/7"


def proposed(root: Path) -> Path:
    """A repository whose main branch lacks a submission of two seeds that the working folder has; the path of its file."""
    git(root, "init", "-q", "-b", "main")
    (root / "README.md").write_text("x")
    commit(root)
    git(root, "checkout", "-qb", "more")
    return write_submission(root / "speedruns", submission())


def merged(root: Path) -> Path:
    """The same, with the submission on the main branch."""
    path = proposed(root)
    commit(root)
    git(root, "branch", "-qf", "main")
    return path


def confirm(path: Path, **changes: Any) -> None:
    """Store a confirmation of a submission, whose retraining had the same losses."""
    write_confirmation(path, retrained(**changes), by=BY, at=NOW)


def judged(root: Path, *, base: str | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The level of the only submission, and its findings about a confirmation."""
    (found,) = judge_all(root / "speedruns", at=NOW, base=base).validated
    return found.verification, [(each.severity, each.message) for each in found.findings if each.code == "confirmation"]


def test_a_confirmation_on_the_base_branch_says_who_reproduced_a_submission(tmp_path: Path) -> None:
    """With the day; without git, too."""
    confirm(merged(tmp_path))
    commit(tmp_path)
    assert judged(tmp_path, base="more") == (f"reproduced by {BY}, 2026-12-01", [])
    shutil.rmtree(tmp_path / ".git")
    assert judged(tmp_path) == (f"reproduced by {BY}, 2026-12-01", [])


def test_a_branch_cannot_bring_a_submission_with_its_own_confirmation(tmp_path: Path) -> None:
    """Its author could have written both."""
    confirm(proposed(tmp_path))
    refused = [judged(tmp_path)]
    commit(tmp_path)
    refused.append(judged(tmp_path))
    assert [(level, severity) for level, ((severity, _),) in refused] == [("self-reported, no record here", "error")] * 2


def test_a_new_confirmation_of_a_merged_submission_is_a_warning_and_retrained(tmp_path: Path) -> None:
    """Its reader sees who states it, and the workflow does not have to believe it."""
    confirm(merged(tmp_path))
    _, ((severity, message),) = judged(tmp_path)
    assert severity == "warning"
    assert BY in message
    repository, place = require_repository(tmp_path), tmp_path / "speedruns"
    assert changed_entries(read_submissions(place), place=place, repository=repository, base=repository.commit_id("main"))


@pytest.mark.parametrize(
    "stored",
    [
        {"retrained": submission(), "by": BY, "at": NOW},
        {"retrained": retrained(), "by": "ada", "at": NOW},
        {"retrained": retrained(), "by": BY, "at": NOW + timedelta(days=400)},
    ],
    ids=["the same runs", "an author", "the future"],
)
def test_a_confirmation_that_no_other_person_can_have_made_is_refused(tmp_path: Path, stored: dict[str, Any]) -> None:
    """A copy of the submission begins when it does, and an author cannot confirm the own entry."""
    path = write_submission(tmp_path / "speedruns", submission())
    write_confirmation(path, **stored)
    level, ((severity, _),) = judged(tmp_path)
    assert (severity, level) == ("error", "self-reported, no record here")


@pytest.mark.parametrize("fault", ["losses", "seeds", "settings", "another version", "not JSON", "a link"])
def test_a_confirmation_of_something_else_is_refused(tmp_path: Path, fault: str) -> None:
    """Of other losses, seeds, settings or bytes, or a file that cannot be read."""
    path = write_submission(tmp_path / "speedruns", submission())
    document = submission_document()
    if fault == "losses":
        document["seeds"] = [each | {"bits_per_byte": each["bits_per_byte"] + 0.1} for each in document["seeds"]]
    elif fault == "seeds":
        document["seeds"] = document["seeds"][:1]
    elif fault == "settings":
        document["training"] |= {"batch_size": 1}
    confirm(path, **document)
    stored = path.with_name(CONFIRMATION_NAME)
    if fault == "another version":
        path.write_bytes(path.read_bytes() + b"\n")
    elif fault == "not JSON":
        stored.write_text("{")
    elif fault == "a link":
        stored.unlink()
        stored.symlink_to(path)
    level, ((severity, _),) = judged(tmp_path)
    assert (severity, level) == ("error", "self-reported, no record here")


def test_a_claimed_level_is_malformed_and_named_within_80_columns(tmp_path: Path) -> None:
    """By the command, with the key and the claim; the exit status is 1."""
    path = tmp_path / "speedruns" / "mine" / "submission.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(submission_document() | {"verification": {"level": "reproduced-by-ci", "by": "me"}}))
    done = marin_scale("speedrun", "validate", "speedruns", cwd=tmp_path)
    assert done.returncode == 1
    assert all(part in done.stdout for part in ("verification.level", "reproduced-by-ci", "verification.by"))
    assert max(map(len, done.stdout.splitlines())) <= 80
