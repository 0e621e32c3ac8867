"""Whether a promise is authentic, and how the run came out against it."""
