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
    """Neither for training, fitting or drawing, nor pydantic, which would take half of the time that `verify` may take."""
    (tmp_path / "preregistrations").mkdir()
    found = after(*arguments, cwd=tmp_path)
    heavy = set(HEAVY) if arguments[:1] == ["check"] else {*HEAVY, "pydantic"}
    assert not heavy.intersection(found["modules"])
    assert found["status"] in (None, 0)


def test_a_forecast_loads_what_it_needs(tmp_path):
    """The list above is one of names that really are loaded by commands that need them."""
    found = after("fit", Path(__file__).parents[3] / "runs" / "delphi", cwd=tmp_path)
    assert found["status"] in (None, 0)
    assert {"pandas", "numpy", "scipy"} <= set(found["modules"])
    assert not {"jax", "levanter", "altair"}.intersection(found["modules"])


def test_words_that_are_read_without_pydantic_arrive_as_they_were_typed(tmp_path):
    """Paths are paths, repeated options keep their order, and what is left out is what the command says by default."""
    program = (
        "import json, sys, typer\n"
        "from pathlib import Path\n"
        "from marin_scaling.cli.app import PlainGroup\n"
        "app = typer.Typer(cls=PlainGroup)\n"
        "@app.callback()\n"
        "def group(loud: bool = False): print(json.dumps(loud))\n"
        "@app.command()\n"
        "def say(place: Path, word: list[str] = typer.Option([]), name: str = 'ada', other: Path = typer.Option(None),\n"
        "        count: int = typer.Option(1, min=0), flag: bool = False):\n"
        "    assert isinstance(place, Path) and (other is None or isinstance(other, Path))\n"
        "    print(json.dumps([str(place), list(word), name, str(other), count, flag]))\n"
        "app()\n"
    )

    def say(*arguments):
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    first = say("say", "a b")
    assert [json.loads(line) for line in first.stdout.splitlines()] == [False, ["a b", [], "ada", "None", 1, False]]
    second = say("--loud", "say", "x", "--word", "b", "--word", "a", "--name", "", "--other", "y/z", "--count", "3", "--flag")
    assert [json.loads(line) for line in second.stdout.splitlines()] == [True, ["x", ["b", "a"], "", "y/z", 3, True]]
    assert say("say", "x", "--count", "-1").returncode == 2
    assert say("say").returncode == 2
