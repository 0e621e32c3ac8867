"""A process that has imported the package once and forks for each command: commands of shell blocks start in milliseconds.

`marin-scale` and `python` in the folder `bin` send their arguments, environment, current folder and three streams to it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

CLIENT = """\
#!{python} -ISE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = [os.path.basename(sys.argv[0]), *sys.argv[1:]], dict(os.environ), os.getcwd()
    content = json.dumps(asked).encode("ascii")
    socket.send_fds(server, [b"%12d" % len(content)], [0, 1, 2])
    server.sendall(content)
    status = int(server.recv(8) or b"70")
sys.exit(status)
"""


@contextlib.contextmanager
def served_commands(folder: Path) -> Iterator[Path]:
    """The folder with `marin-scale` and `python`, as long as the server runs."""
    address, commands = folder / "server", folder / "bin"
    commands.mkdir()
    for name in ("marin-scale", "python"):
        (commands / name).write_text(CLIENT.format(python=sys.executable, address=str(address)))
        (commands / name).chmod(0o755)
    with subprocess.Popen([sys.executable, __file__, str(address)], cwd=folder) as server:
        try:
            while not address.exists() and server.poll() is None:
                time.sleep(0.01)
            yield commands
        finally:
            server.kill()


def _serve(address: str) -> None:
    _warm_up()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address + ".new")
    listener.listen()
    os.rename(address + ".new", address)
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(client)
        client.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _warm_up() -> None:
    """Import what commands import, and fit the table that most pages fit: children inherit both."""
    import marin_scaling
    from marin_scaling.cli.app import app

    for module in pkgutil.walk_packages(marin_scaling.__path__, "marin_scaling."):
        if not module.name.startswith("marin_scaling.train") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with contextlib.chdir(Path(__file__).parents[1]):
        CliRunner().invoke(app, ["fit", "runs/delphi", "--predict", "1e23", "--sensitivity"], catch_exceptions=False)


def _answer(client: socket.socket) -> None:
    """Run one command in this process's child, and send its status."""
    size, streams, _, _ = socket.recv_fds(client, 12, 3)
    content = b""
    while len(content) < int(size):
        content += client.recv(int(size) - len(content))
    (name, *words), environment, folder = json.loads(content)
    worker = os.fork()
    if worker:
        client.sendall(b"%8d" % os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]))
        os._exit(0)
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status = 70
    try:
        status = _ran(name, words)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _ran(name: str, words: list[str]) -> int:
    """Status of the command, which reads and writes the given streams."""
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.argv, sys.path[0] = [name, *words], ""
    try:
        if name == "marin-scale":
            from marin_scaling.cli import main

            main()
        elif words[:1] == ["-c"]:
            sys.argv = words
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        elif words in ([], ["-"]):
            exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
