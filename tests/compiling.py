"""A process that compiles the step of a run, as the lock tells others, for as long as a test wants."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from marin_scaling.run.spec import RunSpec

COMPILE = """
import sys, time
from pathlib import Path
from marin_scaling.run.spec import read_spec
from marin_scaling.train.compiled_programs import compiling_once
spec = read_spec(Path(sys.argv[1]).read_bytes(), name="spec")
with compiling_once(spec, Path(sys.argv[2]), wait=lambda seconds: False, on_note=print) as tell_compiled:
    print("compiling", flush=True)
    sys.stdin.readline()
    tell_compiled()
    sys.stdin.readline()
"""


@contextlib.contextmanager
def another_compiles(spec: RunSpec, compiled: Path) -> Iterator[subprocess.Popen[str]]:
    """It has compiled once it reads a line, and is killed at the end."""
    compiled.mkdir(parents=True, exist_ok=True)
    path = compiled / "spec.json"
    path.write_bytes(spec.to_bytes())
    command = [sys.executable, "-c", COMPILE, str(path), str(compiled)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "compiling\n"
            yield process
        finally:
            process.kill()
