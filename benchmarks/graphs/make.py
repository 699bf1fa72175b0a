"""Write the tasks of this folder: ``python -m benchmarks.graphs.make``.  The files are the same whenever it is run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]


class Program:
    """One graph of a task, node by node."""

    def __init__(self) -> None:
        self.nodes: list[Row] = []

    def input(self, name: str, *shape: int, dtype: str = "float32") -> str:
        """A placeholder."""
        self.nodes.append({"id": name, "kind": "placeholder", "op": name, "shape": list(shape), "dtype": dtype})
        return name

    def call(self, name: str, op: str, *args: Any, shape: Iterable[int], dtype: str = "float32", **kwargs: Any) -> str:
        """An operator; tensors among its arguments are wrapped by :func:`ref`."""
        row = {"id": name, "kind": "call_function", "op": op, "args": list(args), "kwargs": kwargs}
        self.nodes.append({**row, "shape": list(shape), "dtype": dtype})
        return name

    def graph(self, *outputs: str) -> Row:
        """The document's form."""
        return {"nodes": self.nodes, "outputs": [ref(name) for name in outputs]}


def ref(name: str) -> Row:
    """A tensor of the same graph, as an argument."""
    return {"n": name}


def seq(name: str) -> Row:
    """A tensor of the sequential program, as a term."""
    return {"g": "seq", "rank": 0, "n": name}


def dist(rank: int, name: str) -> Row:
    """A tensor of a rank, as a term."""
    return {"g": "dist", "rank": rank, "n": name}


def concat(dim: int, *terms: Row) -> Row:
    """A concatenation, as a term."""
    return {"op": "concat", "args": list(terms), "params": [dim]}


def piece(term: Row, dim: int, start: int, stop: int) -> Row:
    """A slice, as a term."""
    return {"op": "slice", "args": [term], "params": [dim, start, stop, 1]}


def sharded(name: str, dim: int, ranks: int = 2) -> list[Row]:
    """The class that says a tensor is split over the ranks."""
    return [seq(name), concat(dim, *(dist(rank, name) for rank in range(ranks)))]


def copied(name: str, ranks: int = 2) -> list[Row]:
    """The class that says every rank holds the whole tensor."""
    return [seq(name), *(dist(rank, name) for rank in range(ranks))]


def task(name: str, spec: Row, ranks: list[Row], relation: list[list[Row]], expectation: list[list[Row]]) -> Row:
    """A whole document."""
    return {
        "schema": "peer-pair/1",
        "task": name,
        "source": {},
        "world_size": len(ranks),
        "groups": {"0": {"size": len(ranks), "ranks": list(range(len(ranks)))}},
        "seq": spec,
        "dist": [{"rank": rank, **graph} for rank, graph in enumerate(ranks)],
        "relation": [{"inputs": [], "classes": [terms]} for terms in relation],
        "expectation": [{"inputs": [], "classes": [terms]} for terms in expectation],
        "checked_outputs": {"seq": [], "dist": []},
        "forced_leaves": [],
    }


def mlp(hidden: int, reduced: bool) -> Row:
    """gelu(x w) v: the first matrix split by columns, the second by rows on the ranks."""
    p = Program()
    p.input("x", 6, 4), p.input("w", 4, hidden), p.input("v", hidden, 4)
    p.call("h", "aten.mm.default", ref("x"), ref("w"), shape=(6, hidden))
    p.call("a", "aten.gelu.default", ref("h"), shape=(6, hidden))
    out = p.call("y", "aten.mm.default", ref("a"), ref("v"), shape=(6, 4))
    if reduced:
        p.call("r", "_c10d_functional.all_reduce.default", ref("y"), "sum", "0", shape=(6, 4))
        out = p.call("z", "_c10d_functional.wait_tensor.default", ref("r"), shape=(6, 4))
    return p.graph(out)


MLP = [copied("x"), sharded("w", 1), sharded("v", 0)]


def sequence_parallel(rank: int, chunk: int) -> Row:
    """A norm on a slice of the rows, gathered, multiplied by a column shard, and scattered back."""
    p = Program()
    p.input("x", 4, 6), p.input("w", 6, 4)
    p.call("s", "aten.slice.Tensor", ref("x"), 0, 2 * chunk, 2 * chunk + 2, shape=(2, 6))
    p.call("n", "aten._softmax.default", ref("s"), -1, False, shape=(2, 6))
    p.call("g", "_c10d_functional.all_gather_into_tensor.default", ref("n"), 2, "0", shape=(4, 6))
    p.call("c", "aten.slice.Tensor", ref("g"), 1, 3 * rank, 3 * rank + 3, shape=(4, 3))
    p.call("u", "aten.slice.Tensor", ref("w"), 0, 3 * rank, 3 * rank + 3, shape=(3, 4))
    p.call("m", "aten.mm.default", ref("c"), ref("u"), shape=(4, 4))
    return p.graph(p.call("y", "_c10d_functional.reduce_scatter_tensor.default", ref("m"), "sum", 2, "0", shape=(2, 4)))


def softmax_product() -> Row:
    """The sequential program of :func:`sequence_parallel`."""
    p = Program()
    p.input("x", 4, 6), p.input("w", 6, 4)
    p.call("n", "aten._softmax.default", ref("x"), -1, False, shape=(4, 6))
    return p.graph(p.call("y", "aten.mm.default", ref("n"), ref("w"), shape=(4, 4)))


def looked_up(start: int, rows: int, whole: bool) -> Row:
    """Rows of a table, or of a rank's part of it with what is outside masked."""
    p = Program()
    p.input("ids", 5, dtype="int64"), p.input("table", rows, 3)
    if whole:
        return p.graph(p.call("e", "aten.embedding.default", ref("table"), ref("ids"), shape=(5, 3)))
    p.call("lt", "aten.lt.Scalar", ref("ids"), start, shape=(5,), dtype="bool")
    p.call("ge", "aten.ge.Scalar", ref("ids"), start + rows, shape=(5,), dtype="bool")
    p.call("out", "aten.bitwise_or.Tensor", ref("lt"), ref("ge"), shape=(5,), dtype="bool")
    p.call("sub", "aten.sub.Tensor", ref("ids"), start, shape=(5,), dtype="int64")
    p.call("own", "aten.masked_fill.Scalar", ref("sub"), ref("out"), 0, shape=(5,), dtype="int64")
    p.call("e", "aten.embedding.default", ref("table"), ref("own"), shape=(5, 3))
    p.call("m", "aten.unsqueeze.default", ref("out"), 1, shape=(5, 1), dtype="bool")
    p.call("f", "aten.masked_fill.Scalar", ref("e"), ref("m"), 0.0, shape=(5, 3))
    return p.graph(p.call("y", "_c10d_functional.all_reduce.default", ref("f"), "sum", "0", shape=(5, 3)))


def attention_like(columns: int) -> Row:
    """XLA's operators: a product contracted over the first dims, a broadcast literal, a selection, a normalised row."""
    p = Program()
    (
        p.input("q", 4, 6, dtype="float16"),
        p.input("k", 4, columns, dtype="float16"),
        p.input("c", 6, columns, dtype="bool"),
    )
    shape, half = (6, columns), "float16"
    p.call("d", "hlo.dot", ref("q"), ref("k"), [0], [0], [], [], shape=shape, dtype=half)
    p.call("b", "hlo.broadcast", 2.5, [], [6, columns], shape=shape, dtype=half)
    p.call("s", "hlo.select", ref("c"), ref("d"), ref("b"), shape=shape, dtype=half)
    return p.graph(p.call("y", "hlo.logistic", ref("s"), shape=shape, dtype=half))


def tasks() -> list[tuple[Row, str]]:
    """Every task of the folder with its truth."""
    mlp_spec, soft = mlp(8, reduced=False), softmax_product()
    both = [copied("x"), copied("w")]
    rows = [[seq("y"), concat(0, dist(0, "y"), dist(1, "y"))]]
    table = [copied("ids"), sharded("table", 0)]
    embedded = [[seq("e"), dist(0, "y"), dist(1, "y")]]
    fused = [
        [seq("w"), concat(1, *(piece(dist(r, "w"), 1, *half) for half in ((0, 2), (2, 4)) for r in (0, 1)))],
        [seq("v"), concat(0, *(piece(dist(r, "v"), 0, *half) for half in ((0, 2), (2, 4)) for r in (0, 1)))],
    ]
    summed = [[seq("y"), dist(0, "z"), dist(1, "z")]]
    columns = [[seq("y"), concat(1, dist(0, "y"), dist(1, "y"))]]
    hlo = [copied("q"), sharded("k", 1), sharded("c", 1)]
    return [
        (task("mlp", mlp_spec, [mlp(4, True)] * 2, MLP, summed), "right"),
        (task("mlp_interleaved", mlp_spec, [mlp(4, True)] * 2, [copied("x"), *fused], summed), "right"),
        (
            task("mlp_not_reduced", mlp_spec, [mlp(4, False)] * 2, MLP, [[seq("y"), dist(0, "y"), dist(1, "y")]]),
            "wrong",
        ),
        (task("mlp_related_twice", mlp_spec, [mlp(4, True)] * 2, [*MLP, *fused], summed), "conflicting input relation"),
        (task("sequence_parallel", soft, [sequence_parallel(r, r) for r in (0, 1)], both, rows), "right"),
        (task("sequence_parallel_same_chunk", soft, [sequence_parallel(r, 0) for r in (0, 1)], both, rows), "wrong"),
        (
            task("embedding", looked_up(0, 8, True), [looked_up(4 * r, 4, False) for r in (0, 1)], table, embedded),
            "right",
        ),
        (
            task(
                "embedding_offset", looked_up(0, 8, True), [looked_up(3 * r, 4, False) for r in (0, 1)], table, embedded
            ),
            "wrong",
        ),
        (task("hlo_columns", attention_like(4), [attention_like(2)] * 2, hlo, columns), "right"),
        (
            task(
                "hlo_rows_promised",
                attention_like(4),
                [attention_like(2)] * 2,
                hlo,
                [[seq("y"), concat(0, dist(0, "y"), dist(1, "y"))]],
            ),
            "wrong",
        ),
    ]


def main() -> None:
    """Write all files."""
    index = []
    for document, truth in tasks():
        data = json.dumps(document, separators=(",", ":")).encode()
        (HERE / f"{document['task']}.json.gz").write_bytes(gzip.compress(data, mtime=0))
        index.append({"task": document["task"], "truth": truth})
    (HERE / "INDEX.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
