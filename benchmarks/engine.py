"""Speed of the prover, engine only, as multiples of a bare hash-consing walk of the same nodes in the same run.

``python -m benchmarks.engine [FILE ...]`` reads captures (``.json``) and peer-pair/1 tasks (``.json.gz``); without files, the tasks in
``benchmarks/graphs``, then the layers and models of ``stack_checks.py``, recorded first, with the bounds of the project.  The walk numbers every node by ``dict``
from its operator, operands and attributes: the least that any engine must do.  Cold is without a memo, warm is the same program again with one.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.peer_pair.convert import convert
from benchmarks.peer_pair.document import read_task
from benchmarks.stacks import stacked
from benchmarks.trust.programs import recorded_checks
from graphguard.ir import Capture, Graph, Var, capture_from_json
from graphguard.ir.graph import Arg
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.prove import prove

REPEATS = 5
HERE = Path(__file__).parent


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


def side_by_side(graphs: list[Graph], capture: Capture) -> tuple[float, float]:
    """Least CPU seconds of the walk and of a proof without a memo, taken in turns.

    The walk lives in the first caches and a proof does not, so a busy neighbour slows the proof more; one after the other they would not even see the same neighbours.
    """
    gc.collect()
    gc.disable()
    least = [float("inf"), float("inf")]
    for _ in range(2 * REPEATS):
        for place, act in [*[(0, lambda: walk(graphs))] * REPEATS, (1, lambda: prove(capture))]:
            started = time.process_time()
            act()
            least[place] = min(least[place], time.process_time() - started)
    gc.enable()
    return least[0], least[1]


def graphs_of(capture: Capture) -> list[Graph]:
    """The specification's and all ranks'."""
    return [graph for graph in (capture.spec, *capture.ranks) if graph is not None]


def warm(capture: Capture) -> float:
    """CPU seconds of a proof whose every stage is in a memo."""
    memo = Memo()
    prove(capture, memo)
    return min(best(prove, capture, memo) for _ in range(REPEATS))


def table(captures: list[tuple[str, Capture]]) -> None:
    """Every capture by itself, cold and warm."""
    print(f"{'nodes':>6} {'walk ms':>8} {'engine ms':>9} {'us/node':>8} {'times walk':>10} {'warm':>6}  verdict  task")
    for name, capture in captures:
        graphs = graphs_of(capture)
        nodes = sum(len(graph.nodes) for graph in graphs)
        bare, engine = side_by_side(graphs, capture)
        proved = prove(capture).outcome.proved
        again = f"{warm(capture) / bare:6.1f}" if proved else "     -"
        row = (
            f"{nodes:6} {bare * 1e3:8.2f} {engine * 1e3:9.1f} {engine * 1e6 / max(nodes, 1):8.1f} {engine / bare:10.0f}"
        )
        print(f"{row} {again}  {'refines' if proved else 'open   '}  {name}")


def over(more: Capture, one: Capture) -> float:
    """How many times as long a proof of the first takes as of the second, with empty memos and in turns: layers that are alike are proved once."""
    turns = [(best(prove_cold, more), best(prove_cold, one)) for _ in range(REPEATS)]
    return min(seconds for seconds, _ in turns) / min(seconds for _, seconds in turns)


def prove_cold(capture: Capture) -> None:
    """A proof with an empty memo."""
    prove(capture, Memo())


def edited(layer: Capture, count: int) -> float:
    """CPU seconds of the proof of a stack with one edited layer, after the stack without the edit."""
    before, after = stacked(layer, count), with_other_norm(stacked(layer, count), count // 2)
    seconds = float("inf")
    for _ in range(REPEATS):
        memo = Memo()
        prove(before, memo)
        gc.collect()
        gc.disable()
        started = time.process_time()
        proof = prove(after, memo)
        seconds = min(seconds, time.process_time() - started)
        gc.enable()
        assert proof.outcome.proved
        assert 0 < proof.evaluated < proof.calls / 4
    return seconds


def with_other_norm(capture: Capture, layer: int) -> Capture:
    """Another epsilon in the first norm of one layer, in both programs."""

    def of(graph: Graph) -> Graph:
        places = [
            i for i, node in enumerate(graph.nodes) if node.op == "aten.add.Tensor" and isinstance(node.args[1], float)
        ]
        index = places[2 * layer]
        node = graph.nodes[index]
        changed = replace(node, args=(node.args[0], 2e-5))
        return replace(graph, nodes=(*graph.nodes[:index], changed, *graph.nodes[index + 1 :]))

    assert capture.spec is not None
    return replace(capture, spec=of(capture.spec), ranks=tuple(map(of, capture.ranks)))


def bounds(recorded: dict[str, Capture]) -> None:
    """What the project promises of stacks, and what is measured."""
    forward, both = recorded["layer_tp2"], recorded["layer_tp2_backward"]
    one = stacked(both, 1)
    rows = [
        ("8 layers forward over one", over(stacked(forward, 8), stacked(forward, 1)), 1.5),
        ("32 layers forward and backward over one", over(stacked(both, 32), one), 3.0),
        ("one edited layer of 32 over one, cold", edited(both, 32) / best(prove_cold, one), 2.0),
    ]
    for name, ratio, bound in rows:
        print(f"{ratio:6.2f} times (bound {bound})  {name}")
    deep = stacked(recorded["layer_tp16"], 126)
    nodes = sum(len(graph.nodes) for graph in graphs_of(deep))
    started = time.process_time()
    proof = prove(deep, Memo())
    seconds = time.process_time() - started
    print(
        f"{seconds:6.2f} s, proved: {proof.outcome.proved}  126 layers on 16 ranks, {nodes} nodes, {proof.evaluated} evaluated"
    )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB (bound 1024)")


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args(arguments).files
    if files:
        table([(path.name, load(path)) for path in files])
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
        return 0
    recorded = {name.split(".")[1]: capture for name, capture in recorded_checks([HERE / "stack_checks.py"])}
    own = [(path.name, load(path)) for path in sorted((HERE / "graphs").glob("*.json.gz"))]
    table([*own, *sorted(recorded.items())])
    bounds(recorded)
    return 0


if __name__ == "__main__":
    sys.exit(main())
