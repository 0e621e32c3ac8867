"""What is promised before the run: a statement, signed as the exact bytes of its file."""
