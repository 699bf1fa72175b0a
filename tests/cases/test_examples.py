"""The examples are judged as they were: verdicts, findings and relations are recorded."""

from pathlib import Path

import pytest

from graphguard.checks.project.configuration import load_configuration
from graphguard.checks.project.discovery import discover
from graphguard.checks.running.driver import Options, run_checks
from graphguard.report.sources import Sources

from ..recorded import Recording, record_of
from .conftest import worker

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture
def recorded(request):
    return Recording(Path(__file__).parent / "recorded" / "examples.json", update=request.config.getoption("--record"))


@pytest.mark.parametrize("name", NAMES)
def test_an_example(name, recorded):
    configuration = load_configuration(EXAMPLES)
    found = discover([EXAMPLES / f"{name}.py"], configuration)
    reports = run_checks(found, configuration, Options(cache=False), worker=worker(configuration.python))
    assert reports
    assert not recorded.compare(name, record_of(reports, Sources(configuration.root)))


def test_every_record_is_of_an_example(recorded):
    assert not recorded.only(NAMES)
