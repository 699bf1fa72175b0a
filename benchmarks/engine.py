"""Speed of the prover, engine only, as multiples of a bare hash-consing walk of the same nodes in the same run.

``python -m benchmarks.engine [FILE ...]`` reads captures (``.json``) and peer-pair/1 tasks (``.json.gz``); without files, the tasks in
``benchmarks/graphs``.  The walk numbers every node by ``dict`` from its operator, operands and attributes: the least that any engine must do.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from pathlib import Path

from benchmarks.peer_pair.convert import convert
from benchmarks.peer_pair.document import read_task
from graphguard.ir import Capture, Graph, Var, capture_from_json
from graphguard.ir.graph import Arg
from graphguard.refine.prove import prove

REPEATS = 5


def load(path: Path) -> Capture:
    """A capture from either format."""
    if path.suffix == ".gz":
        return convert(read_task(path)).capture
    return capture_from_json(path.read_bytes())


def walk(graphs: list[Graph]) -> int:
    """Number the nodes of graphs by structure; the count of different ones."""
    table: dict[object, int] = {}
    for graph in graphs:
        names: dict[Var, int] = {
            var: table.setdefault(("leaf", leaf), len(table)) for var, leaf in graph.inputs.items()
        }
        for node in graph.nodes:
            number = table.setdefault((node.op, tuple([_name(arg, names) for arg in node.args])), len(table))
            for out in node.outs:
                names[out] = number
    return len(table)


def _name(arg: Arg, names: dict[Var, int]) -> object:
    if isinstance(arg, Var):
        return names.get(arg, -1)
    return tuple([_name(item, names) for item in arg]) if isinstance(arg, tuple) else arg


def best(act: object, *arguments: object) -> float:
    """Least CPU seconds of a few calls, without garbage collection."""
    gc.collect()
    gc.disable()
    seconds = float("inf")
    for _ in range(REPEATS):
        started = time.process_time()
        act(*arguments)  # type: ignore[operator]
        seconds = min(seconds, time.process_time() - started)
    gc.enable()
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args(arguments).files or sorted((Path(__file__).parent / "graphs").glob("*.json.gz"))
    print(f"{'nodes':>6} {'walk ms':>8} {'engine ms':>9} {'us/node':>8} {'times walk':>10}  verdict  task")
    for path in files:
        capture = load(path)
        graphs = [graph for graph in (capture.spec, *capture.ranks) if graph is not None]
        nodes = sum(len(graph.nodes) for graph in graphs)
        bare, engine = best(walk, graphs), best(prove, capture)
        verdict = "refines" if prove(capture).outcome.proved else "open   "
        row = (
            f"{nodes:6} {bare * 1e3:8.2f} {engine * 1e3:9.1f} {engine * 1e6 / max(nodes, 1):8.1f} {engine / bare:10.0f}"
        )
        print(f"{row}  {verdict}  {path.name}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
