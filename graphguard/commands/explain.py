"""``graphguard explain``: what a rule means."""

from __future__ import annotations

import argparse
import sys

from graphguard.commands.failure import CommandError
from graphguard.report.registry import UnknownRuleError, explain, listing


def run(arguments: argparse.Namespace) -> int:
    """Print a rule, or one line for every rule."""
    try:
        sys.stdout.write(explain(arguments.rule) if arguments.rule else listing())
    except UnknownRuleError as error:
        raise CommandError(str(error)) from error
    return 0
