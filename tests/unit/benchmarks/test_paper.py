"""The path from a peer-pair/1 folder to verdicts: our own small tasks always, the published graphs where a folder is given."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.graphs.make import concat, dist, piece, ref, seq, task, tasks
from benchmarks.paper import truths, verify
from benchmarks.peer_pair.convert import convert
from benchmarks.peer_pair.document import DocumentError, read_task, task_of
from graphguard.confirm.fields import field_run
from graphguard.refine.evaluation import evaluate

ROOT = Path(__file__).parents[3]
OWN = ROOT / "benchmarks" / "graphs"
PUBLISHED = os.environ.get("GRAPHGUARD_PAPER_GRAPHS", "")


def wanted(task: str, truth: str) -> set[str]:
    """The verdicts that a truth allows."""
    if truth.startswith("conflicting"):
        return {"unknown"}
    if truth.startswith("right over the reals"):
        return {"refines", "unknown"}
    return {"refines"} if truth.startswith("right") else {"broken"}


@pytest.mark.parametrize("task", sorted(truths(OWN)))
def test_own_tasks(task):
    row = verify(OWN / f"{task}.json.gz")
    assert row.verdict in wanted(task, truths(OWN)[task]), row


@pytest.mark.skipif(not PUBLISHED, reason="GRAPHGUARD_PAPER_GRAPHS names no folder with the published graphs")
@pytest.mark.parametrize("task", sorted(truths(Path(PUBLISHED))) if PUBLISHED else [])
def test_published_tasks(task):
    row = verify(Path(PUBLISHED) / f"{task}.json.gz")
    assert row.verdict in wanted(task, truths(Path(PUBLISHED))[task]), row


def test_files_are_those_of_the_script():
    for document, _ in tasks():
        data = gzip.decompress((OWN / f"{document['task']}.json.gz").read_bytes())
        assert json.loads(data) == document


def test_json_output_is_json_only():
    command = [sys.executable, "-m", "benchmarks.paper", str(OWN), "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    rows = json.loads(run.stdout)
    assert {row["task"] for row in rows} == set(truths(OWN))
    assert all(set(row) == {"task", "verdict", "seconds"} for row in rows)


def test_torch_is_loaded_only_where_something_is_not_proved():
    code = "import sys, pathlib, benchmarks.paper as p; p.verify(pathlib.Path(sys.argv[1])); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, OWN / "mlp.json.gz"], cwd=ROOT, check=False).returncode == 0


def test_a_damaged_file_is_unknown_with_its_name(tmp_path):
    (tmp_path / "bad.json.gz").write_bytes(b"not gzip")
    row = verify(tmp_path / "bad.json.gz")
    assert row.verdict == "unknown"
    assert "bad.json.gz" in row.reason


def test_another_schema_is_refused(tmp_path):
    (tmp_path / "old.json.gz").write_bytes(gzip.compress(b'{"schema": "peer-pair/0"}'))
    with pytest.raises(DocumentError, match="peer-pair/1"):
        read_task(tmp_path / "old.json.gz")


def document(name: str) -> dict:
    return next(task for task, _ in tasks() if task["task"] == name)


def test_every_output_is_promised_not_only_the_expected():
    row = document("mlp")
    for graph in (row["seq"], *row["dist"]):
        graph["outputs"] = [*graph["outputs"], {"n": "h"}]
    capture = convert(task_of(row)).capture
    assert [promise.name for promise in capture.promises] == ["y", "h"]
    assert capture.promises[1].wanted == "infer"


def test_a_relation_of_an_intermediate_tensor_is_not_trusted_where_it_can_be_derived():
    row = document("mlp")
    row["relation"].append(
        {"inputs": [], "classes": [[{"g": "seq", "rank": 0, "n": "h"}, {"g": "dist", "rank": 0, "n": "a"}]]}
    )
    converted = convert(task_of(row))
    assert not converted.capture.assumed
    assert {node.op for node in converted.capture.spec.nodes} == {"aten.mm.default", "aten.gelu.default"}


def test_a_relation_of_an_intermediate_tensor_stays_an_assumption_where_its_origin_is_unknown():
    row = document("mlp")
    row["relation"] = [entry for entry in row["relation"] if entry["classes"][0][0]["n"] != "w"]
    columns = {"op": "concat", "args": [{"g": "dist", "rank": r, "n": "h"} for r in (0, 1)], "params": [1]}
    row["relation"].append({"inputs": [], "classes": [[{"g": "seq", "rank": 0, "n": "h"}, columns]]})
    converted = convert(task_of(row))
    assert "intermediate tensor 'h'" in converted.capture.assumed[0]
    assert {leaf.name for leaf in converted.capture.leaves} == {"h", "v"}


def _unknown_tensor(task: dict) -> None:
    task["expectation"] = [
        {"inputs": [], "classes": [[{"g": "seq", "rank": 0, "n": "nothing"}, {"g": "dist", "rank": 0, "n": "z"}]]}
    ]


def _wrong_argument(task: dict) -> None:
    task["dist"][0]["nodes"][3]["args"][1] = "max"


def _too_few_graphs(task: dict) -> None:
    task["world_size"] = 3


@pytest.mark.parametrize("damage", [_unknown_tensor, _wrong_argument, _too_few_graphs])
def test_a_document_that_contradicts_itself_is_unknown(damage, tmp_path, monkeypatch):
    for module in (evaluate, field_run):  # the document has the defect, and not a rule
        monkeypatch.setattr(module, "STRICT", False)
    task = document("mlp")
    damage(task)
    path = tmp_path / "damaged.json.gz"
    path.write_bytes(gzip.compress(json.dumps(task).encode()))
    row = verify(path)
    assert (row.verdict, bool(row.reason)) == ("unknown", True)


def test_a_tensor_that_several_classes_tell_is_related():
    """Two ranks share a key head: one class tells whose rows a rank's are, another that the shared ones are the other rank's."""
    shape = {"kind": "placeholder", "op": "w", "dtype": "float32"}
    own, shared = (lambda rank: piece(dist(rank, "w"), 0, 0, 4)), (lambda rank: piece(dist(rank, "w"), 0, 4, 6))
    relation = [[seq("w"), concat(0, own(0), own(1), shared(0))], [shared(0), shared(1)]]
    spec = {"nodes": [{"id": "w", "shape": [10, 3], **shape}], "outputs": [ref("w")]}
    rank = {"nodes": [{"id": "w", "shape": [6, 3], **shape}], "outputs": [ref("w")]}
    document = task("shared", spec, [rank, rank], relation, [[seq("w"), concat(0, own(0), own(1), shared(1))]])
    captured = convert(task_of(document)).capture
    assert [leaf.name for leaf in captured.leaves] == ["w"]
    second = captured.ranks[1]
    assert next(node.args[1:] for node in second.nodes if node.op == "aten.slice.Tensor") == (0, 4, 10)
