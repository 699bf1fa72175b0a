"""``graphguard lsp``: the language server on standard input and output."""

from __future__ import annotations

import argparse
import runpy
import sys

from graphguard.commands.failure import CommandError


def run(arguments: argparse.Namespace) -> int:
    """Run the server's package as a program: the engine itself never imports it."""
    sys.argv = ["graphguard lsp", *arguments.arguments]
    try:
        runpy.run_module("graphguard_server", run_name="__main__", alter_sys=True)
    except ImportError as error:
        raise CommandError(
            f"the language server is not installed ({error}): pip install 'graphguard[server]'"
        ) from error
    return 0
