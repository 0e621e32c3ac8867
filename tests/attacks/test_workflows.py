"""Workflows, ours and those that `init` writes: pinned code, no kept token, least rights, and nothing of high severity."""

import errno
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin_scaling.publish.build import make_user_repository

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
WRITE = re.compile(r"\bwrite\b")


@pytest.fixture(params=["ours", "those of init"])
def workflows(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    root = ROOT
    if request.param != "ours":
        root = tmp_path
        make_user_repository(root)
    found = sorted((root / ".github" / "workflows").glob("*.yml"))
    assert len(found) >= 5
    return found


def documents(workflows: list[Path]) -> list[dict[str, Any]]:
    return [yaml.load(path.read_text(), yaml.BaseLoader) for path in workflows]


def steps(workflows: list[Path]) -> list[dict[str, Any]]:
    return [step for each in documents(workflows) for job in each["jobs"].values() for step in job["steps"]]


def test_every_action_is_pinned_by_its_commit(workflows: list[Path]) -> None:
    lines = [line for path in workflows for line in path.read_text().splitlines() if "uses:" in line]
    assert len(lines) > 10
    assert [line for line in lines if not PINNED.search(line)] == []


def test_no_checkout_leaves_its_token(workflows: list[Path]) -> None:
    checkouts = [step for step in steps(workflows) if "actions/checkout@" in step.get("uses", "")]
    assert len(checkouts) >= 4
    assert all(step["with"]["persist-credentials"] == "false" for step in checkouts)


def test_rights_to_write_belong_to_one_job_that_runs_no_shell(workflows: list[Path]) -> None:
    for document in documents(workflows):
        assert not WRITE.search(json.dumps(document["permissions"]))
        for job in document["jobs"].values():
            if WRITE.search(json.dumps(job.get("permissions", {}))):
                assert all("run" not in step for step in job["steps"])


def test_no_shell_contains_an_expression(workflows: list[Path]) -> None:
    """An expression is text of a stranger that the shell would run."""
    assert [step["run"] for step in steps(workflows) if "${{" in step.get("run", "")] == []
    assert [step for step in steps(workflows) if "${{" in step.get("with", {}).get("script", "")] == []


def test_speedrun_checks_compare_with_the_base_branch_in_a_whole_clone(workflows: list[Path]) -> None:
    """Without the base, a copy could be taken for its original, and every entry would be retrained."""
    (path,) = [each for each in workflows if each.name == "speedrun.yml"]
    (job,) = documents([path])[0]["jobs"].values()
    commands = [step["run"] for step in job["steps"] if " speedrun " in step.get("run", "")]
    assert [command.partition(" speedrun ")[2].split()[0] for command in commands] == ["validate", "confirm", "confirm"]
    assert all(command.endswith('--base "origin/$GITHUB_BASE_REF"') for command in commands)
    assert [step["with"]["fetch-depth"] for step in job["steps"] if "checkout" in step.get("uses", "")] == ["0"]


def test_code_of_an_entry_runs_after_a_label_without_network_or_new_rights(workflows: list[Path]) -> None:
    """A push does not run it, also not to a branch with the label; what runs can neither reach a server nor become root."""
    (path,) = [each for each in workflows if each.name == "speedrun.yml"]
    document = documents([path])[0]
    (job,) = document["jobs"].values()
    assert "secrets" not in path.read_text()
    assert job["if"] == "github.event.action != 'labeled' || github.event.label.name == 'run-code'"
    (step,) = [each for each in job["steps"] if "--run-code" in each.get("run", "")]
    assert step["if"] == "github.event.action == 'labeled'"
    if os.geteuid() or shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.skip("only root may take the network away here")
    wrapper = " ".join(step["run"].partition("env PATH")[0].split()).removeprefix("sudo ")
    tried = (
        "import socket\ntry:\n  socket.create_connection(('1.1.1.1', 53), 2)\nexcept OSError as error:\n  print(error.errno)"
    )
    done = subprocess.run(
        ["bash", "-c", f'{wrapper} bash -c "grep NoNewPrivs /proc/self/status; exec python3 -c \\"$1\\"" - "$1"', "-", tried],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["NoNewPrivs:", "1", str(errno.ENETUNREACH)], done.stderr


def test_every_package_is_installed_in_a_known_version(workflows: list[Path]) -> None:
    """Ours by its constraints; in a user's workflows from an address of theirs, never by a name that anyone may take."""
    installs = [step["run"] for step in steps(workflows) if "pip install" in step.get("run", "")]
    assert len(installs) >= 3
    assert all("constraints.txt" in line or '@$SOURCE"' in line for line in installs)


def test_zizmor_finds_nothing_of_high_severity(workflows: list[Path]) -> None:
    zizmor = shutil.which("zizmor")
    if zizmor is None:
        pytest.skip("zizmor is not installed")
    command = [zizmor, "--offline", "--no-progress", "--no-config", "--format", "json-v1", *map(str, workflows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    findings = [each for each in json.loads(done.stdout) if not each["ignored"]]
    assert [(each["ident"], each["determinations"]["severity"]) for each in findings] == []


def test_zizmor_is_not_blind(tmp_path: Path) -> None:
    """The same call names a workflow that is not sound."""
    zizmor = shutil.which("zizmor")
    if zizmor is None:
        pytest.skip("zizmor is not installed")
    path = tmp_path / "bad.yml"
    path.write_text(
        "on: pull_request_target\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n"
        "      - uses: actions/checkout@v5\n      - run: echo ${{ github.event.pull_request.title }}\n"
    )
    command = [zizmor, "--offline", "--no-progress", "--no-config", "--format", "json-v1", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert {"template-injection", "unpinned-uses"} <= {each["ident"] for each in json.loads(done.stdout)}
