"""Limits of files, messages and pages: how much of an untrusted file is accepted or shown."""

from __future__ import annotations

MESSAGE_CHARACTERS = 3000
"""Characters of one line of an error."""
MESSAGE_LINES = 24
"""Lines of an error that lists several faults or quotes a program."""
VALUE_CHARACTERS = 80
"""Characters of a key, name or value that a message quotes."""
FAULTS_NAMED = 10
"""Faults of one file that a message lists; the others are counted."""
UNKNOWN_KEYS_NAMED = 5
"""Unknown keys that a message lists."""

CELL_CHARACTERS = 2000
"""Characters of a cell, from a file, of a page's table."""
TITLE_CHARACTERS = 200
"""Characters of a page's title, and of a link's text."""
LISTED = 200
"""Rows of a table, or items of a list, that a page shows of one file."""
RUNS_LISTED = 2000
"""Runs of one ladder that its page shows; the page of a larger table has no back-test."""
RUNS_DRAWN = 500
"""Runs of one ladder that its figures show, evenly by cost."""
FORECASTS_DRAWN = 40
"""Forecasts of one group that the figure of all intervals shows."""
JOINED = 12
"""Names that one line or cell lists."""
PREFORMATTED_CHARACTERS = 20_000
"""Characters of a text that a page shows verbatim."""
PREFORMATTED_LINES = 400
"""Lines of a text that a page shows verbatim."""
COMMENT_CHARACTERS = 55_000
"""Characters of a review as a comment; GitHub refuses more than 65,536, and the workflow that posts it cuts at 60,000."""
REVIEWED_NAMED = 100
"""Verdicts that a review lists before its details; refused ones come first."""

SIGNERS_BYTES = 1024 * 1024
"""Bytes of `allowed_signers`: about 9,000 lines."""
SIGNERS_CHANGED = 200
"""Lines of `allowed_signers` that one pull request may change, since a reviewer reads each."""

YAML_BYTES = 1024 * 1024
"""Bytes of a YAML file: ladder, recipe, track, entry, policy, experiment."""
NUMBER_CHARACTERS = 400
"""Characters of a number in a YAML file; a long YAML 1.1 number to base 60 (`1:59:59`) takes quadratic time."""
TEXT_CHARACTERS = 1000
"""Characters of a run's name, seed or status in a table."""
MALFORMED_LINES = 100
"""Lines of one file of experiments; the rest is not read."""
EXPERIMENTS_NAMED = 200
"""Experiments with findings that a terminal shows; `--json` has all."""
NAME_BYTES = 200
"""Bytes of one part of a path; file systems allow 255, and some file names extend a given name."""
SITE_SECONDS = 1800
"""Seconds for mkdocs to build the whole site; 20,000 submissions take 200 s."""
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""First and last year of a time in a file."""
COMMITS_SEARCHED = 100
"""Commits, the newest that changed a file, in which a version of it is searched."""
VERSIONS_BYTES = 64 * 1024 * 1024
"""Bytes of all versions of a file that are read in such a search."""
IMPORTED_FILES, IMPORTED_BYTES = 50_000, 512 * 1024 * 1024
"""Files, and bytes of them, of a registry that is imported from another repository; 1,000 forecasts have about 9,000 files."""
