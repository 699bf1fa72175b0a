"""Checks on processes: the command line's workers and provers, one machine or many, and what is kept of earlier runs."""
