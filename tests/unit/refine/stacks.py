"""Stacks of tensor-parallel layers, forward and backward, written by hand; one layer can be spoiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphguard.ir import Capture, CheckRef, Graph, Leaf, Node, Placement, Promise, Span, TensorType, Var
from graphguard.ir.capture import Like

ROWS, WIDTH, INNER = 3, 4, 8
Spoil = Callable[["Program", int], None]


class Program:
    """One graph of a stack: the specification where ``ways`` is 1."""

    def __init__(self, layers: int, rank: int, ways: int) -> None:
        self.rank, self.ways = rank, ways
        self.inputs: dict[Var, str] = {}
        self.types: dict[Var, TensorType] = {}
        self.nodes: list[Node] = []
        self.labels: dict[Var, str] = {}
        self.outputs: dict[str, Var] = {}
        self.phase = "prelude"
        self.eps = 1.0
        self.inner = INNER // ways
        self.x = self.leaf("x", ROWS, WIDTH)
        self.seed = self.leaf("seed", ROWS, WIDTH)
        self.weights = [
            (self.held(f"{k}.w", 1, WIDTH, INNER), self.held(f"{k}.v", 0, INNER, WIDTH)) for k in range(layers)
        ]

    def leaf(self, name: str, *shape: int) -> Var:
        var = Var(len(self.types))
        self.inputs[var] = name
        self.types[var] = TensorType(shape, "float32")
        return var

    def held(self, name: str, dim: int, *shape: int) -> Var:
        whole = self.leaf(name, *shape)
        if self.ways == 1:
            return whole
        size = shape[dim] // self.ways
        mine = tuple(size if d == dim else extent for d, extent in enumerate(shape))
        part = self.call("aten.slice.Tensor", mine, whole, dim, self.rank * size, (self.rank + 1) * size)
        self.labels[part] = name
        return part

    def call(self, op: str, shape: Sequence[int], *args: object) -> Var:
        out = Var(len(self.types))
        self.types[out] = TensorType(tuple(shape), "float32")
        self.nodes.append(Node(op, args, {}, (out,), phase=self.phase))  # type: ignore[arg-type]
        return out

    def mm(self, a: Var, b: Var) -> Var:
        return self.call("aten.mm.default", (self.types[a].shape[0], self.types[b].shape[1]), a, b)  # type: ignore[arg-type]

    def t(self, a: Var) -> Var:
        return self.call("aten.t.default", self.types[a].shape[::-1], a)  # type: ignore[arg-type]

    def summed(self, a: Var) -> Var:
        shape = self.types[a].shape
        return a if self.ways == 1 else self.call("gg.all_reduce", shape, a, "sum", tuple(range(self.ways)))  # type: ignore[arg-type]


def program(
    layers: int,
    rank: int,
    ways: int,
    spoil: dict[int, Spoil],
    backward: bool,
    table: bool = False,
    scaled: bool = False,
) -> Graph:
    """x + relu(x w) v, layer by layer; then the gradients of the weights for the cotangent ``seed``.

    With a ``table`` an input that all layers read turns x first; in a ``scaled`` stack every layer multiplies x by a weight of its own first.
    """
    p = Program(layers, rank, ways)
    angles = p.leaf("angles", WIDTH) if table else None
    scales = [p.leaf(f"{k}.s", WIDTH) for k in range(layers if scaled else 0)]
    p.phase = "forward"
    turn = None if angles is None else p.call("aten.cos.default", (WIDTH,), angles)
    x, saved = p.x, []
    for k, (w, v) in enumerate(p.weights):
        factor = scales[k] if scaled else turn
        read = x if factor is None else p.call("aten.mul.Tensor", (ROWS, WIDTH), x, factor)
        h = p.mm(read, w)
        g = p.call("aten.relu.default", (ROWS, p.inner), h)
        y = p.mm(g, v)
        before = len(p.nodes)
        total = p.summed(y)
        if ways > 1 and k in spoil:
            del p.nodes[before:]
            spoil[k](p, k)
            p.nodes[-1] = Node(p.nodes[-1].op, _read(p.nodes[-1].args, y), {}, (total,), phase="forward")
        saved.append((x, read, h, g))
        x = p.call("aten.add.Tensor", (ROWS, WIDTH), x, total)
    p.outputs["out"] = x
    p.phase = "backward"
    d = p.seed
    for k in reversed(range(layers if backward else 0)):
        (x, read, h, g), (w, v) = saved[k], p.weights[k]
        p.outputs[f"grad({k}.v)"] = p.mm(p.t(g), d)
        dh = p.call("aten.threshold_backward.default", (ROWS, p.inner), p.mm(d, p.t(v)), h, 0)
        p.outputs[f"grad({k}.w)"] = p.mm(p.t(read), dh)
        dx = p.summed(p.mm(dh, p.t(w)))
        if scaled:
            product = p.call("aten.mul.Tensor", (ROWS, WIDTH), x, dx)
            p.outputs[f"grad({k}.s)"] = p.call("aten.sum.dim_IntList", (WIDTH,), product, (0,))
            dx = p.call("aten.mul.Tensor", (ROWS, WIDTH), dx, scales[k])
        d = p.call("aten.add.Tensor", (ROWS, WIDTH), d, dx)
    p.outputs["grad(x)"] = d
    return Graph(p.inputs, {}, tuple(p.nodes), p.types, p.outputs, p.labels)


def _read(args: tuple[object, ...], var: Var) -> tuple[object, ...]:
    return tuple(var if arg is None else arg for arg in args)


def stack(
    layers: int,
    ways: int = 2,
    spoil: dict[int, Spoil] | None = None,
    backward: bool = True,
    table: bool = False,
    scaled: bool = False,
) -> Capture:
    """A capture of a stack on ``ways`` ranks; one with a ``table`` has no gradients."""
    assert not (backward and table)
    spec = program(layers, 0, 1, {}, backward, table, scaled)
    ranks = tuple(program(layers, rank, ways, spoil or {}, backward, table, scaled) for rank in range(ways))
    weights = [f"{k}.{name}" for k in range(layers) for name in ("wvs" if scaled else "wv")]
    leaves = tuple(
        Leaf(name, "parameter" if name in weights else "input", spec.types[var]) for var, name in spec.inputs.items()
    )
    promises = [Promise("out", {"tp": Placement("replicate")})]
    if backward:
        promises += [Promise("grad(x)", "infer"), *(Promise(f"grad({name})", Like(name)) for name in weights)]
    check = CheckRef("stack.py::stack", "stack", Span("stack.py", 1))
    return Capture(check, {"tp": ways}, leaves, spec, ranks, tuple(promises))


def instead(op: str, *args: object) -> Spoil:
    """Another call in place of a layer's all-reduce; None stands for its operand."""

    def spoil(p: Program, _: int) -> None:
        p.nodes.append(Node(op, args, {}, (), phase="forward"))  # type: ignore[arg-type]

    return spoil
