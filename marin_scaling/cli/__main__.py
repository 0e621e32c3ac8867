"""`python -m marin_scaling.cli`: the same as `marin-scale`; modules in the current folder are not imported."""

from __future__ import annotations

import os
import sys

from marin_scaling.cli import main

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # a stranger's numpy.py may lie there
    del sys.path[0]


main()
