"""Review of a pull request to a registry."""
