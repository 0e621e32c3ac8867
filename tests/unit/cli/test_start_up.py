"""What is loaded when the command line starts: nothing heavy, so that help and verification take a few tenths of a second.

Modules, not seconds: no test asserts a time. `benchmarks/start_up.py` measures it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "preregistration-v1"
HEAVY = (
    "jax",
    "levanter",
    "ray",
    "pandas",
    "numpy",
    "scipy",
    "scipy.optimize",
    "altair",
    "lmfit",
    "pyarrow",
    "mkdocs",
    "wandb",
)

PROGRAM = """\
import json, sys
from marin_scaling.cli import main

status = None
if len(sys.argv) > 1:
    try:
        main()
    except SystemExit as end:
        status = end.code
print(json.dumps({"status": status, "modules": sorted(sys.modules)}))
"""


def after(*arguments, cwd):
    """Exit status of `marin-scale` in this folder, and the modules that are loaded then."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["--version"],
        ["verify", "--help"],
        ["verify"],
        ["check"],
        ["verify", "--no-refit", "--registry", GOLDEN],
    ],
    ids=["import", "--help", "--version", "verify --help", "verify of nothing", "check of nothing", "verify of the golden one"],
)
def test_nothing_heavy_is_loaded(tmp_path, arguments):
    """Neither for training, fitting nor drawing; the list of commands does not load pydantic either."""
    (tmp_path / "preregistrations").mkdir()
    found = after(*arguments, cwd=tmp_path)
    heavy = {*HEAVY, "pydantic"} if arguments == ["--help"] else set(HEAVY)
    assert not heavy.intersection(found["modules"])
    assert found["status"] in (None, 0)


def test_a_forecast_loads_what_it_needs(tmp_path):
    """The list above is one of names that really are loaded by commands that need them."""
    found = after("fit", Path(__file__).parents[3] / "runs" / "delphi", cwd=tmp_path)
    assert found["status"] in (None, 0)
    assert {"pandas", "numpy", "scipy"} <= set(found["modules"])
    assert not {"jax", "levanter", "altair"}.intersection(found["modules"])
