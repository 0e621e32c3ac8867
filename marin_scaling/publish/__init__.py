"""Figures and pages made from the files of a repository, before mkdocs runs."""
