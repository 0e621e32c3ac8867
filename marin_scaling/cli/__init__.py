"""The command `marin-scale`: one module per noun; a command reads, calls, prints. Heavy imports stand inside commands."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main() -> None:
    """Run the command line: known errors become one message on standard error and an exit status, never a traceback."""
    from marin_scaling.printable import plain_output

    with plain_output():
        _run()


def _run() -> None:
    from marin_scaling.cli.app import app
    from marin_scaling.errors import MarinScalingError

    try:
        app(prog_name="marin-scale")
    except MarinScalingError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # Typer has caught Ctrl-C, and says nothing
            _stopped()
        raise
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        _print_no_more()
        sys.exit(1)
    except OSError as error:  # a disk that fails where no command expects it, such as under standard output
        _print_no_more()
        print(f"error: {_disk_sentence(error)}", file=sys.stderr)
        sys.exit(MarinScalingError.exit_status)


def _stopped() -> NoReturn:
    print("\nstopped. Type the same command again: it goes on where it was.", file=sys.stderr)
    sys.exit(_INTERRUPTED)


def _print_no_more() -> None:
    """Let what is still to be printed go nowhere, so that the interpreter can end in peace."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _disk_sentence(error: OSError) -> str:
    from marin_scaling.printable import quoted

    where = quoted(error.filename or "standard output")
    return (
        f"{where}: {(error.strerror or str(error)).lower()}.\n"
        "  why: The system refused to read or write there.\n"
        "  fix: Free some space, or give yourself permission, and type the same command again."
    )
