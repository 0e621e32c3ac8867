"""Laws fitted to a table of runs, each with a status on the use of its numbers."""
