"""Names by which reports speak of tensors."""

from __future__ import annotations

from graphguard.ir import Graph, Var


def names_of(graph: Graph) -> dict[Var, str]:
    """A name for every variable: its leaf, its label, its output, else module path and operator, numbered where several share one."""
    names: dict[Var, str] = dict(graph.inputs)
    names.update(graph.labels)
    counts: dict[str, int] = {}
    for name, var in graph.outputs.items():
        names.setdefault(var, name)
    for node in graph.nodes:
        for out in node.outs:
            if out in names:
                continue
            base = ".".join(filter(None, (node.module, operator(node.op))))
            counts[base] = counts.get(base, 0) + 1
            names[out] = base if counts[base] == 1 else f"{base}#{counts[base]}"
    return names


def operator(op: str) -> str:
    """The short name of an operator: ``aten.mm.default`` is ``mm``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op
