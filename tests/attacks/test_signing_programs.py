"""Attacks through git's signing settings: what reads a registry starts no program that they name."""

import os
import subprocess
from pathlib import Path

import pytest
from command_line import marin_scale
from git_repository import branch_off


@pytest.mark.parametrize("command", [("verify", "all"), ("check", "all"), ("review", "--base", "main")])
@pytest.mark.parametrize("scope", ["repository", "person"])
def test_what_only_reads_starts_no_signing_program(
    root: Path, folder: Path, command: tuple[str, ...], scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the repository's settings, nor of the reader's own."""
    assert folder.is_dir()
    branch_off(root)
    program = root.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {root.parent / 'ran'}\n")
    program.chmod(0o700)
    settings = root / ".git" / "config" if scope == "repository" else root.parent / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(root.parent / "gitconfig") if scope == "person" else os.devnull)
    for name, value in (("gpg.format", "ssh"), ("gpg.ssh.program", program), ("gpg.ssh.defaultKeyCommand", program)):
        subprocess.run(["git", "config", "--file", settings, name, str(value)], check=True)
    assert marin_scale(*command, cwd=root).returncode in (0, 1)
    assert not (root.parent / "ran").exists()
