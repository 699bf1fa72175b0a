"""The cache of captures, through real workers: what hits, what does not, and what a damaged entry does."""

import os
from pathlib import Path

import pytest

from graphguard.checks.project.configuration import Configuration
from graphguard.checks.running.worker_client import WorkerClient
from graphguard.ir import capture_from_json
from graphguard.trace.depends import cache
from graphguard.trace.source.remap import Moves, Unmapped

MODEL = """import os
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = float(open(os.path.join(os.path.dirname(__file__), "scale.txt")).read())

    def forward(self, x):
        return torch.tanh(x) * self.scale
"""

CHECK = """import os
import graphguard as gg
from model import Model

@gg.check(mesh={"tp": 2})
def check(mesh):
    os.environ.get("GRAPHGUARD_TEST_FLAG")
    return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """One worker for all tests; every test has a project, and so a part of the cache, of its own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHGUARD_CACHE_DIR", str(folder))
        with WorkerClient(Configuration(folder)) as client:
            yield client


@pytest.fixture
def project(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "check.py").write_text(CHECK)
    (tmp_path / "scale.txt").write_text("2.0")
    for entry in cache.cache_folder().glob("captures/*/*"):
        entry.unlink()
    return tmp_path


def entries():
    return list(cache.cache_folder().glob("captures/*/*.json"))


def capture(client, project, **params):
    asked = {"file": str(project / "check.py"), "root": str(project), "name": "check", "mesh": None, **params}
    answer = client.call("capture", asked)
    found = capture_from_json(answer["capture"])
    assert not found.troubles
    return found, answer["cached"]


def tanh_line(found):
    node = next(node for node in found.spec.nodes if node.op == "aten.tanh.default")
    return found.spec.stack_of(node.stack)[0].span


def test_hits(client, project):
    first, cached = capture(client, project)
    assert not cached
    second, cached = capture(client, project)
    assert cached
    assert (second.spec, second.ranks, second.sources) == (first.spec, first.ranks, first.sources)
    assert not capture(client, project, cache=False)[1]
    assert not capture(client, project, mesh={"tp": 3})[1]


def test_comments_and_layout_hit_and_places_move(client, project):
    first, _ = capture(client, project)
    edited = MODEL.replace("import torch\n", "import torch  # a comment\n\n# more\n").replace(
        "torch.tanh(x) * self.scale", "(\n            torch.tanh(x)\n            * self.scale\n        )"
    )
    (project / "model.py").write_text(edited)
    (project / "check.py").write_text("# top\n" + CHECK)
    second, cached = capture(client, project)
    assert cached
    assert (tanh_line(first).line, tanh_line(first).column) == (11, 16)
    assert (tanh_line(second).line, tanh_line(second).column) == (14, 13)
    assert second.check.span.line == first.check.span.line + 1


def test_meaning_misses_and_undoing_hits(client, project):
    capture(client, project)
    overlay = {str(project / "model.py"): MODEL.replace("tanh", "relu")}
    assert not capture(client, project, overlay=overlay)[1]
    assert capture(client, project, overlay=overlay)[1]
    assert capture(client, project)[1]


def test_a_file_that_the_check_opened(client, project):
    capture(client, project)
    (project / "scale.txt").write_text("3.0")
    assert not capture(client, project)[1]


def test_the_environment_and_restarts(client, project, monkeypatch):
    capture(client, project)
    with WorkerClient(Configuration(project)) as same:
        assert capture(same, project)[1]
    monkeypatch.setenv("GRAPHGUARD_TEST_FLAG", "set")
    with WorkerClient(Configuration(project)) as other:
        assert not capture(other, project)[1]


def test_what_a_program_sets_itself_is_no_part_of_its_environment(client, project):
    (project / "check.py").write_text('import os\n\nos.environ["GRAPHGUARD_TEST_FLAG"] = "own"\n' + CHECK)
    capture(client, project)
    assert capture(client, project)[1]


@pytest.mark.parametrize(
    "damage", [b"", b"not json\n{}", b'{"sources": {}, "environment": {}, "answers": {}}\n{"schema": 1}']
)
def test_damaged_entries_are_misses(client, project, damage):
    capture(client, project)
    (entry,) = entries()
    entry.write_bytes(damage)
    assert not capture(client, project)[1]
    assert capture(client, project)[1]


def test_failures_are_not_kept(client, project):
    (project / "check.py").write_text(CHECK.replace("gg.tensor(2, 4)", "0 / 0"))
    asked = {"file": str(project / "check.py"), "root": str(project), "name": "check", "mesh": None}
    assert capture_from_json(client.call("capture", asked)["capture"]).troubles
    assert not entries()


def test_size_is_capped(tmp_path, monkeypatch):
    folder = tmp_path
    for index in range(4):
        home = folder / "captures" / f"{index}"
        home.mkdir(parents=True)
        (home / "entry.json").write_bytes(b"x" * 1000)
        os.utime(home / "entry.json", (index, index))
    monkeypatch.setattr(cache, "SIZE_LIMIT", 2600)
    cache._trim(folder)
    assert sorted(path.parent.name for path in folder.glob("captures/*/*")) == ["2", "3"]
    assert cache.clear_cache(folder) == 2


def test_two_at_once(client, project):
    with WorkerClient(Configuration(project)) as other:
        asked = {"file": str(project / "check.py"), "root": str(project), "name": "check", "mesh": None}
        futures = [each.start_call("capture", asked) for each in (client, other) for _ in range(3)]
        assert all(not future.result(60)["summary"]["troubles"] for future in futures)
        assert capture(client, project)[1]


def test_a_file_that_asks_for_its_rank(client, project):
    (project / "check.py").write_text(
        """
import os
import torch
import graphguard as gg
RANK = int(os.environ["RANK"])
print("imported")

@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(lambda x: x, lambda x: x + RANK, (gg.tensor(2),))
"""
    )
    found, _ = capture(client, project)
    adds = [next(node.args[1] for node in graph.nodes if node.op == "aten.add.Tensor") for graph in found.ranks]
    assert adds == [0, 1]
    assert str(project / "check.py") in found.sources
    assert capture(client, project)[1]


def test_places_that_have_no_counterpart():
    moves = Moves(b"x = f(1)\n", b"# c\nx = f(\n  1)\n")
    from graphguard.ir import Span

    assert moves.span(Span("f", 1, 5, 1, 9)) == Span("f", 2, 5, 3, 5)
    with pytest.raises(Unmapped):
        moves.span(Span("f", 1, 2, 1, 9))
    with pytest.raises(Unmapped):
        Moves(b"x = 1\n", b"x = f(1)\n")


def test_folder(monkeypatch):
    monkeypatch.delenv("GRAPHGUARD_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_folder() == Path("/somewhere/graphguard")
