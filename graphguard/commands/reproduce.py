"""``graphguard reproduce``: a counterexample as a pytest that runs the user's own code on real processes."""

from __future__ import annotations

import argparse
import os
import pprint
import re
import sys
from pathlib import Path

from graphguard.checks.project.configuration import ConfigurationError, load_configuration
from graphguard.checks.project.discovery import DiscoveryError, discover
from graphguard.checks.running.driver import Options, run_checks
from graphguard.commands.failure import CommandError
from graphguard.report.diagnostics import Report, Verdict

_TEMPLATE = '''"""{headline}

Fails while {check} is broken: run it with pytest.  Written by `graphguard reproduce`.
"""

from pathlib import Path

from graphguard.checks.running.reproduction import assert_agrees

FILE = Path(__file__).parent / {file!r}
# {seen}
INPUTS = {inputs}


def test_{name}():
    assert_agrees(str(FILE), {own!r}, mesh={mesh!r}, inputs=INPUTS)
'''


def run(arguments: argparse.Namespace) -> int:
    """Write the test; 0 where it was written, 2 where there is nothing to reproduce."""
    report = _broken(arguments.check, arguments.mesh)
    target = Path(arguments.output or f"test_{_name(report)}_reproduced.py")
    target.write_text(_test(report, target), encoding="utf-8")
    sys.stdout.write(f"{target}: run it with pytest {target}\n")
    return 0


def _broken(selector: str, mesh: dict[str, int] | None) -> Report:
    try:
        configuration = load_configuration(Path(selector.partition("::")[0]))
        checks = discover([Path(selector)], configuration)
    except (ConfigurationError, DiscoveryError) as error:
        raise CommandError(str(error)) from error
    options = Options(meshes=(mesh,) if mesh else (), fixes=False)
    for report in run_checks(checks, configuration, options):
        if report.verdict is Verdict.BROKEN and report.counterexample is not None:
            return report
    raise CommandError(f"{selector} has no counterexample: nothing in it is broken; graphguard check says more")


def _name(report: Report) -> str:
    """The name of a check as that of a function."""
    return re.sub(r"\W+", "_", report.check.name).strip("_")


def _test(report: Report, target: Path) -> str:
    example = report.counterexample
    assert example is not None
    inputs = pprint.pformat(example.inputs, width=100, sort_dicts=False)
    return _TEMPLATE.format(
        headline=report.diagnostics[0].headline.replace('"""', "'''").replace("\\", "/")
        if report.diagnostics
        else "A counterexample.",
        check=report.check.id,
        file=os.path.relpath(report.check.span.file, target.parent.absolute()),
        seen=str(example),
        inputs=inputs,
        name=_name(report),
        own=report.check.name,
        mesh=example.mesh,
    )
