"""Stacks made of one recorded layer: its graphs repeated, each layer on the output of the one before, with parameters of its own."""

from __future__ import annotations

from dataclasses import replace

from graphguard.ir import Capture, Graph, Leaf, Node, Promise, TensorType, Var
from graphguard.ir.capture import Like
from graphguard.ir.graph import Arg

STREAM, SEED = "x", "cotangent(out)"


def stacked(layer: Capture, count: int) -> Capture:
    """``count`` layers; the recorded one takes ``x`` and gives ``out`` in the same layout, and ``grad(x)`` where it has a backward."""
    assert layer.spec is not None
    own = {leaf.name for leaf in layer.leaves if leaf.kind == "parameter"}
    leaves = [leaf for leaf in layer.leaves if leaf.name not in own]
    leaves += [renamed(leaf, k) for k in range(count) for leaf in layer.leaves if leaf.name in own]
    promises = [promise for promise in layer.promises if not _inner(promise.name, own)]
    promises += [
        Promise(_of(promise.name, own, k), Like(_of(promise.wanted.leaf, own, k)))
        for k in range(count)
        for promise in layer.promises
        if isinstance(promise.wanted, Like) and _inner(promise.name, own)
    ]
    return replace(
        layer,
        leaves=tuple(leaves),
        spec=_Stack(layer.spec, own, count).graph(),
        ranks=tuple(_Stack(graph, own, count).graph() for graph in layer.ranks),
        promises=tuple(promises),
    )


def renamed(leaf: Leaf, k: int) -> Leaf:
    """A parameter of one layer."""
    return replace(leaf, name=f"layers.{k}.{leaf.name}")


def _inner(name: str, own: set[str]) -> bool:
    return any(name in (leaf, f"grad({leaf})") for leaf in own)


def _of(name: str, own: set[str], k: int) -> str:
    if name in own:
        return f"layers.{k}.{name}"
    return f"grad(layers.{k}.{name[5:-1]})" if _inner(name, own) else name


class _Stack:
    def __init__(self, layer: Graph, own: set[str], count: int) -> None:
        self.layer, self.own, self.count = layer, own, count
        self.inputs: dict[Var, str] = {}
        self.types: dict[Var, TensorType] = {}
        self.labels: dict[Var, str] = {}
        self.outputs: dict[str, Var] = {}
        self.nodes: list[Node] = []
        self.shared: dict[Var, Var] = {}
        self.maps: list[dict[Var, Var]] = [{} for _ in range(count)]
        self.stream = self._held(STREAM)
        self.seed = self._held(SEED) if SEED in layer.inputs.values() else None

    def _held(self, leaf: str) -> Var:
        """What a program reads of a leaf after its prelude."""
        mine = next(var for var, name in self.layer.inputs.items() if name == leaf)
        for node in self.layer.nodes:
            if node.phase == "prelude" and mine in node.operands():
                mine = node.outs[0]
        return mine

    def graph(self) -> Graph:
        for var in self.layer.constants:
            self.shared[var] = self._fresh(var)
        for var, name in self.layer.inputs.items():
            if name not in self.own:
                self.shared[var] = self._input(var, name)
        for k, known in enumerate(self.maps):
            known.update(self.shared)
            for var, name in self.layer.inputs.items():
                if name in self.own:
                    known[var] = self._input(var, f"layers.{k}.{name}")
            self._emit(k, "prelude")
        for k in range(self.count):
            if k:
                self.maps[k][self.stream] = self.maps[k - 1][self.layer.outputs["out"]]
            self._emit(k, "forward")
        for k in reversed(range(self.count)):
            if self.seed is not None and k + 1 < self.count:
                self.maps[k][self.seed] = self.maps[k + 1][self.layer.outputs["grad(x)"]]
            self._emit(k, "backward")
        self._name()
        constants = {self.shared[var]: constant for var, constant in self.layer.constants.items()}
        return replace(
            self.layer,
            inputs=self.inputs,
            constants=constants,
            nodes=tuple(self.nodes),
            types=self.types,
            outputs=self.outputs,
            labels=self.labels,
        )

    def _fresh(self, var: Var) -> Var:
        new = Var(len(self.types))
        self.types[new] = self.layer.types[var]
        return new

    def _input(self, var: Var, name: str) -> Var:
        new = self._fresh(var)
        self.inputs[new] = name
        return new

    def _emit(self, k: int, phase: str) -> None:
        known = self.maps[k]
        for node in self.layer.nodes:
            if node.phase == phase:
                args = tuple(_read(arg, known) for arg in node.args)
                kwargs = {name: _read(arg, known) for name, arg in node.kwargs.items()}
                for out in node.outs:
                    known[out] = self._fresh(out)
                self.nodes.append(replace(node, args=args, kwargs=kwargs, outs=tuple(known[out] for out in node.outs)))

    def _name(self) -> None:
        for name, var in self.layer.outputs.items():
            for k in range(self.count):
                if _inner(name, self.own):
                    self.outputs[_of(name, self.own, k)] = self.maps[k][var]
        for name, k in (("out", self.count - 1), ("grad(x)", 0)):
            if name in self.layer.outputs:
                self.outputs[name] = self.maps[k][self.layer.outputs[name]]
        for var, name in self.layer.labels.items():
            for k in range(self.count if name in self.own else 1):
                self.labels[self.maps[k][var]] = _of(name, self.own, k)


def _read(arg: Arg, known: dict[Var, Var]) -> Arg:
    if isinstance(arg, Var):
        return known[arg]
    return tuple(_read(item, known) for item in arg) if isinstance(arg, tuple) else arg
