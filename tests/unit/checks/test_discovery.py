"""Which functions are found to be checks, by whatever name a file has ``graphguard.check``."""

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.project.discovery import discover

BODY = "\ndef one(mesh):\n    pass\n"
BASE = "import functools\nimport graphguard as gg\nfrom graphguard import check as declare\n"
FILES = {
    "base.py": BASE
    + 'tp2 = gg.check(mesh={"tp": 2})\ncheck = gg.check\nwith_mesh = functools.partial(check, mesh={"tp": 2})\n',
    "again.py": "from base import *\n",
    "lib/__init__.py": "",
    "lib/names.py": "import graphguard\n",
    "broken.py": "import graphguard\ndef (:\n",
    "loop.py": "from loop_too import *  # graphguard\n",
    "loop_too.py": "from loop import *  # graphguard\n",
}
FOUND = [
    'import graphguard as gg\n@gg.check(mesh={"tp": 2})',
    'from graphguard import *\n@check(mesh={"tp": 2})',
    'from graphguard import check as declare\n@declare({"tp": 2})',
    'import graphguard\ntp2 = graphguard.check(mesh={"tp": 2})\n@tp2',
    'import graphguard\ndeclare = graphguard.check\n@declare(mesh={"tp": 2})',
    'import graphguard\nother = graphguard\n@other.check(mesh={"tp": 2})',
    'from functools import partial\nimport graphguard\ndeclare = partial(graphguard.check, mesh={"tp": 2})\n@declare()',
    'from base import *\n@gg.check(mesh={"tp": 2})',
    'from base import gg\n@gg.check(mesh={"tp": 2})',
    "from base import tp2 as two\n@two",
    "from .base import tp2\n@tp2",
    "from base import with_mesh\n@with_mesh()",
    'from again import declare\n@declare(mesh={"tp": 2})',
    'from lib.names import graphguard\n@graphguard.check(mesh={"tp": 2})',
    'if True:\n    import graphguard as gg\n@gg.check(mesh={"tp": 2})',
]
NOT_FOUND = [
    "import graphguard as gg\n@gg.checks(mesh=1)",
    "from base import functools\n@functools.check(mesh=1)",
    "from broken import check\n@check(mesh=1)",
    "from loop import check\n@check(mesh=1)",
    "from elsewhere import check\n@check(mesh=1)",
    "@property",
]


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def found_in(project, text):
    (project / "checks.py").write_text(text + BODY)
    return discover([project / "checks.py"], Configuration(project))


@pytest.mark.parametrize("text", FOUND)
def test_found(project, text):
    (check,) = found_in(project, text)
    assert check.ref.name == "one"
    assert check.meshes in (({"tp": 2},), None)


@pytest.mark.parametrize("text", NOT_FOUND)
def test_not_found(project, text):
    assert found_in(project, text) == []


def test_a_kept_decorator_says_its_mesh(project):
    (check,) = found_in(project, "from base import tp2\n@tp2")
    assert check.meshes == ({"tp": 2},)


NAMED = 'import graphguard as gg\n{}\n@gg.check(mesh={{"tp": TP}})'


@pytest.mark.parametrize("text", ["TP = 2", "DP, TP = 4, 2", 'AXIS, TP = "tp", 2'])
def test_a_mesh_by_the_names_of_numbers_is_known_without_running_the_file(project, text):
    (check,) = found_in(project, NAMED.format(text))
    assert check.meshes == ({"tp": 2},)


@pytest.mark.parametrize(
    "text",
    [
        "TP = 2\nTP += 1",
        "TP = 2\nif True:\n    TP = 4",
        "TP = 2\ndef enlarge():\n    global TP\n    TP = 4",
        "TP = 2\nfrom base import *",
        "TP = 2\nfrom sizes import TP",
        "TP = 2\nfor TP in (4,):\n    pass",
        "TP = int(2)",
        "TP = 2\nmatch 4:\n    case TP:\n        pass",
    ],
)
def test_a_mesh_by_a_name_that_may_be_bound_again_is_not(project, text):
    (check,) = found_in(project, NAMED.format(text))
    assert check.meshes is None


def test_a_kept_decorator_reads_the_names_of_its_own_file(project):
    (project / "base.py").write_text(BASE + 'TP = 4\nlater = gg.check(mesh={"tp": TP})\n')
    (check,) = found_in(project, "from base import later\nTP = 2\n@later")
    assert check.meshes is None


@pytest.mark.parametrize("module", ["base", "again"])
def test_a_file_that_changes_is_read_again_and_what_imports_it_as_well(project, module):
    text = f"from {module} import later\n@later"
    assert found_in(project, text) == []
    (project / "base.py").write_text(BASE + 'later = gg.check(mesh={"tp": 4})\n')
    (check,) = found_in(project, text)
    assert check.meshes == ({"tp": 4},)
    (project / "base.py").unlink()
    assert found_in(project, text) == []


def test_every_file_is_read_once_however_many_ways_lead_to_it(project):
    for level in range(30):
        text = f"from level{level + 1} import *\nfrom twin{level + 1} import *  # graphguard\n"
        (project / f"level{level}.py").write_text(text)
        (project / f"twin{level}.py").write_text(text)
    for last in ("level30.py", "twin30.py"):
        (project / last).write_text("from base import *  # graphguard\n")
    (check,) = found_in(project, "from level0 import tp2\n@tp2")
    assert check.meshes == ({"tp": 2},)


def test_a_file_that_does_not_parse_is_told_where_it_names_graphguard(project):
    (project / "checks.py").write_text("@one\ndef (:\n")
    assert discover([project / "checks.py"], Configuration(project)) == []
    (check,) = discover([project / "broken.py"], Configuration(project))
    assert check.trouble is not None
