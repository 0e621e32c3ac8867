"""The command `marin-scale`: one module per noun; a command reads, calls, prints. Heavy imports stand inside commands."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line: known errors become one message on standard error and an exit status, never a traceback."""
    from marin_scaling.cli.app import app
    from marin_scaling.errors import MarinScalingError

    try:
        app(prog_name="marin-scale")
    except MarinScalingError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        print("\nstopped. Type the same command again: it goes on where it was.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
