"""Limits of files, messages and pages: how much of an untrusted file is accepted or shown."""

from __future__ import annotations

MESSAGE_CHARACTERS = 3000
"""Of one line of an error."""
MESSAGE_LINES = 24
"""Of an error that lists several faults or quotes a program."""
VALUE_CHARACTERS = 80
"""Of a key, name or value that a message quotes."""
FAULTS_NAMED = 10
"""Faults of one file that a message names; the others are counted."""
UNKNOWN_KEYS_NAMED = 5
"""Unknown keys among them."""

CELL_CHARACTERS = 2000
"""Of one cell of a page's table that comes from a file."""
TITLE_CHARACTERS = 200
"""Of a page's title, and of the words of a link."""
LISTED = 200
"""Rows of a table, or items of a list, that a page shows of one file."""
RUNS_LISTED = 2000
"""Runs of one ladder that its page shows; of a larger table its page has no back-test."""
RUNS_DRAWN = 500
"""Runs of one ladder that its figures show, evenly by cost."""
FORECASTS_DRAWN = 40
"""Forecasts of one group that the figure of all intervals shows."""
JOINED = 12
"""Names that one line or cell shows beside each other."""
PREFORMATTED_CHARACTERS = 20_000
"""Of a text that a page shows as it is."""
PREFORMATTED_LINES = 400
"""Of the same."""
COMMENT_CHARACTERS = 55_000
"""Of a review as a comment: GitHub refuses more than 65,536, and the workflow that posts it cuts at 60,000."""
REVIEWED_NAMED = 100
"""Verdicts that a review lists before its details; refused ones come first."""

SIGNERS_BYTES = 1024 * 1024
"""Of `allowed_signers`: about 9,000 lines."""
SIGNERS_CHANGED = 200
"""Lines of `allowed_signers` that one pull request may change: a reviewer reads each."""

YAML_BYTES = 1024 * 1024
"""Of a YAML file: ladder, recipe, track, entry, policy, experiment."""
NUMBER_CHARACTERS = 400
"""Of a number in a YAML file: `1:59:59` to the base of 60, which YAML 1.1 has, takes quadratic time."""
TEXT_CHARACTERS = 1000
"""Of a run's name, seed or status in a table."""
MALFORMED_LINES = 100
"""Lines of one file of experiments; below the last of so many the file is not read."""
EXPERIMENTS_NAMED = 200
"""Experiments with findings that a terminal shows; `--json` has all."""
NAME_BYTES = 200
"""Of one part of a path: file systems have 255, and the files that are made of a name have longer ones."""
SITE_SECONDS = 1800
"""Of mkdocs, which builds the whole site: 20,000 submissions take it 200 s."""
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Of a time in a file."""
