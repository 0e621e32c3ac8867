"""Command `marin-scale`: one module per noun. Heavy imports are inside the commands."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

_INTERRUPTED = 130  # 128 + SIGINT, as in shells


def main() -> None:
    """Run the command line: known errors become one message on standard error and an exit status."""
    from marin_scaling.printable import plain_output

    with plain_output():
        _run()


def _run() -> None:
    from marin_scaling.cli.app import app
    from marin_scaling.errors import MarinScalingError
    from marin_scaling.printable import wrapped_error

    try:
        app(prog_name="marin-scale")
    except MarinScalingError as error:
        print(wrapped_error(error), file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # Typer has caught Ctrl-C
            _stopped()
        raise
    except BrokenPipeError:  # the reader closed the pipe, as in `| head`
        _print_no_more()
        sys.exit(1)
    except OSError as error:  # a failing disk, such as under standard output
        _print_no_more()
        print(wrapped_error(_disk_sentence(error)), file=sys.stderr)
        sys.exit(MarinScalingError.exit_status)


def _stopped() -> NoReturn:
    print("\nInterrupted. Rerun the same command to resume.", file=sys.stderr)
    sys.exit(_INTERRUPTED)


def _print_no_more() -> None:
    """Redirect standard output to nowhere, so that the interpreter exits without further errors."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _disk_sentence(error: OSError) -> str:
    from marin_scaling.printable import quoted

    where = quoted(error.filename or "standard output")
    return (
        f"{where}: {(error.strerror or str(error)).lower()}.\n"
        "  fix: Free disk space or change the permissions, then rerun the same command."
    )
