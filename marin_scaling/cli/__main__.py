"""`python -m marin_scaling.cli`: the same as `marin-scale`."""

from marin_scaling.cli import main

main()
