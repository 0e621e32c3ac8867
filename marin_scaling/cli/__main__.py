"""`python -m marin_scaling.cli`, equivalent to `marin-scale`; modules in the current folder are not imported."""

from __future__ import annotations

import os
import sys

from marin_scaling.cli import main

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # it may contain an untrusted numpy.py
    del sys.path[0]


if __name__ == "__main__":  # the processes that verify beside each other import this module
    main()
