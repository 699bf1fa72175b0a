"""Recording plain functions, and running graphs exactly as recorded: every operator in its own dtype, with PyTorch's own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from graphguard.ir import DType, Graph, Node, Var
from graphguard.ir.joining import JoinedCall, join
from graphguard.ir.layouts import laid_out
from graphguard.ir.pruning import prune_prelude
from graphguard.ir.validity import faults
from graphguard.trace.calls.lockstep import Answers, rounds
from graphguard.trace.record.capture import RankTrace, Recording
from graphguard.trace.record.exchange import tensor_of
from graphguard.trace.worlds.world import World

Program = Callable[..., Any]


def record(
    program: Program,
    inputs: Sequence[torch.Tensor],
    rank: int = 0,
    mesh: Mapping[str, int] | None = None,
    *,
    backward: bool = False,
    answers: Answers | None = None,
    device: str = "cpu",
    wants_mesh: bool = False,
) -> RankTrace:
    """One rank of ``program(*inputs)``; with ``backward``, float inputs get gradients for a cotangent of ones."""
    with World(rank, dict(mesh or {"w": 1}), device) as world:
        recording = Recording(world, answers)
        with recording:
            leaves = [
                recording.leaf(f"in{i}", tuple(t.shape), t.dtype, requires_grad=backward and t.is_floating_point())
                for i, t in enumerate(inputs)
            ]
            recording.phase = "forward"
            result = program(world.mesh, *leaves) if wants_mesh else program(*leaves)
            outs = list(result) if isinstance(result, tuple | list) else [result]
            for index, out in enumerate(outs):
                recording.output(f"out[{index}]", out)
            if backward:
                recording.phase = "backward"
                grads = torch.autograd.grad(
                    [o.sum() for o in outs if o.requires_grad],
                    [x for x in leaves if x.requires_grad],
                    allow_unused=True,
                )
                for index, grad in enumerate(grads):
                    if grad is not None:
                        recording.output(f"grad[{index}]", grad)
        trace = recording.finish()
    assert trace.graph is None or faults(trace.graph, world.size) == []
    return trace


def record_ranks(
    program: Program, inputs: Sequence[torch.Tensor], mesh: Mapping[str, int], **how: Any
) -> tuple[Graph, ...]:
    """All ranks, in lockstep where values ask for it, without what building left over."""
    size = 1
    for extent in mesh.values():
        size *= extent
    traces = rounds(
        lambda ranks, answers: [record(program, inputs, r, mesh, answers=answers, **how) for r in ranks], size
    )
    for trace in traces:
        assert trace.graph is not None, (trace.troubles, trace.waiting)
    graphs, _ = laid_out(tuple(trace.graph for trace in traces if trace.graph is not None))
    return prune_prelude(graphs)


def ops_of(graph: Graph) -> list[str]:
    """Operator names in order."""
    return [node.op for node in graph.nodes]


def run(graph: Graph, leaves: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs of one graph alone."""
    return run_ranks((graph,), leaves)[0]


def run_ranks(graphs: tuple[Graph, ...], leaves: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """The outputs of all ranks together."""
    joined = join(graphs)
    assert not joined.mismatches, joined.mismatches
    values: list[dict[Var, torch.Tensor]] = []
    for graph in graphs:
        start = {var: leaves[name] for var, name in graph.inputs.items()}
        values.append(start | {var: tensor_of(constant) for var, constant in graph.constants.items()})
    with torch.no_grad():
        for step in joined.order:
            if isinstance(step, JoinedCall):
                _communicate(step, graphs, values)
            else:
                rank, index = step
                node = graphs[rank].nodes[index]
                _store(node, _call(node, values[rank], graphs[rank]), values[rank])
    return [{name: env[var] for name, var in graph.outputs.items()} for graph, env in zip(graphs, values, strict=True)]


def assert_equals_eager(program: Program, x: torch.Tensor) -> None:
    """What ``program(x)`` gives in eager mode is what its recording gives, bit for bit."""
    result = program(x)
    trace = record(program, [x])
    assert trace.graph is not None, trace.troubles
    found = run(trace.graph, {"in0": x})
    for index, value in enumerate(result if isinstance(result, tuple) else (result,)):
        expected = value.detach()
        assert found[f"out[{index}]"].dtype == expected.dtype
        assert torch.equal(found[f"out[{index}]"], expected), index


def _store(node: Node, result: Any, values: dict[Var, torch.Tensor]) -> None:
    results = list(result) if isinstance(result, tuple | list) else [result]
    flat = [item for part in results for item in (part if isinstance(part, tuple | list) else [part])]
    values.update((var, value) for var, value in zip(node.outs, flat, strict=False) if value is not None)


def _value(arg: Any, values: dict[Var, torch.Tensor]) -> Any:
    if isinstance(arg, Var):
        return values[arg]
    if isinstance(arg, DType):
        return getattr(torch, arg.name)
    if isinstance(arg, tuple):
        return [_value(item, values) for item in arg]
    return arg


def _call(node: Node, values: dict[Var, torch.Tensor], graph: Graph) -> Any:
    args = [_value(arg, values) for arg in node.args]
    kwargs = {key: _value(arg, values) for key, arg in node.kwargs.items()}
    if node.op == "aten.view.default":
        return args[0].reshape(args[1])
    if node.op == "aten.as_strided.default":
        return torch.as_strided(args[0].contiguous(), *args[1:])
    if node.op == "gg.sdpa":
        return torch.nn.functional.scaled_dot_product_attention(*args[:6], scale=args[6], enable_gqa=args[7])
    if node.op == "gg.sdpa_backward":
        return _attention_gradients(*args)
    namespace, name, overload = node.op.split(".")
    func = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    if node.draw is not None:
        torch.manual_seed(hash(node.draw) % 2**31)
    return func(*args, **kwargs)


def _attention_gradients(
    grad: Any, query: Any, key: Any, value: Any, out: Any, mask: Any, p: Any, causal: Any, scale: Any, gqa: Any
) -> Any:
    with torch.enable_grad():
        operands = [t.detach().requires_grad_(True) for t in (query, key, value)]
        out = torch.nn.functional.scaled_dot_product_attention(*operands, mask, p, causal, scale=scale, enable_gqa=gqa)
        return torch.autograd.grad(out, operands, grad)


_REDUCE = {
    "sum": lambda parts: sum(parts[1:], parts[0].clone()),
    "avg": lambda parts: sum(parts[1:], parts[0].clone()) / len(parts),
    "max": lambda parts: torch.stack(parts).amax(0),
    "min": lambda parts: torch.stack(parts).amin(0),
    "product": lambda parts: torch.stack(parts).prod(0),
}


def _communicate(call: JoinedCall, graphs: tuple[Graph, ...], values: list[dict[Var, torch.Tensor]]) -> None:
    nodes = {rank: graphs[rank].nodes[index] for rank, index in call.nodes.items()}
    args = {rank: [_value(arg, values[rank]) for arg in node.args] for rank, node in nodes.items()}
    group, kind = call.group, call.kind
    for me, rank in enumerate(group):
        if rank not in nodes:
            continue
        mine = args[rank]
        if kind == "gg.all_reduce":
            result = _REDUCE[mine[1]]([args[m][0] for m in group])
        elif kind == "gg.all_gather":
            result = [args[m][0] for m in group]
        elif kind == "gg.reduce_scatter":
            result = _REDUCE[mine[1]]([args[m][0][me] for m in group])
        elif kind == "gg.all_to_all":
            result = [args[m][0][me] for m in group]
        elif kind == "gg.broadcast":
            result = args[mine[1]][0]
        elif kind == "gg.reduce":
            result = _REDUCE[mine[2]]([args[m][0] for m in group]) if rank == mine[1] else mine[0]
        elif kind == "gg.gather":
            result = [args[m][0] for m in group] if rank == mine[1] else []
        elif kind == "gg.scatter":
            result = args[mine[1]][0][me]
        elif kind == "gg.send":
            if rank == group[0]:
                continue
            result = args[group[0]][0]
        else:
            continue
        _store(nodes[rank], result, values[rank])
