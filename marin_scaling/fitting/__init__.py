"""Laws fitted to a table of runs, each with a status that says whether it may be used."""
