"""Start other programs, but none from the current folder, which may hold a stranger's pull request."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

_SEARCHED = ("PATH", "PYTHONPATH")


def program(name: str) -> str:
    """Return the absolute path of an installed program; `FileNotFoundError` if there is none.

    A relative or empty entry of PATH means the current folder, and is skipped.
    """
    found = shutil.which(name, path=_absolute(os.environ.get("PATH", os.defpath)))
    if found is None:
        raise FileNotFoundError(2, "not installed", name)
    return found


def python_module(name: str) -> list[str]:
    """Return the command that runs a module of this Python; -P keeps the current folder out of the modules' path."""
    return [sys.executable, "-P", "-m", name]


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a Python process: search paths without relative entries, and -P for its own children.

    >>> child_environment({"PYTHONPATH": ":/lib/a:b", "HOME": "/root"})
    {'PYTHONPATH': '/lib/a', 'HOME': '/root', 'PYTHONSAFEPATH': '1'}
    """
    searched = {name: _absolute(environment[name]) for name in _SEARCHED if name in environment}
    return {**environment, **searched, "PYTHONSAFEPATH": "1"}


def _absolute(path: str) -> str:
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))
