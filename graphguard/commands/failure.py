"""Why a command could not run."""

from __future__ import annotations


class CommandError(Exception):
    """The message is for the user; the exit code is 2."""
