"""One operator call, run by PyTorch and by its rule over plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from graphguard.ir import DType, Graph, Node, TensorType, Var
from graphguard.relations.algebra import Unsupported
from graphguard.relations.numbers import Number, Numbers
from graphguard.rules import evaluate_node

DRAW = ("cpu", 0)
PLACES = ("device", "layout", "memory_format", "pin_memory", "generator")


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor, complex ones as pairs."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def tensors_of(result: Any) -> list[torch.Tensor]:
    """All tensors of a nested result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in tensors_of(item)]
    return []


class Bench:
    """A graph of one node and the numbers of its operands."""

    def __init__(self, algebra: Numbers, known: bool = False) -> None:
        self.algebra = algebra
        self.known = known
        self.types: dict[Var, TensorType] = {}
        self.values: dict[Var, Number] = {}

    def variable(self, tensor: torch.Tensor) -> Var:
        var = Var(len(self.types))
        self.types[var] = TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        return var

    def argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            var = self.variable(arg)
            self.values[var] = Number(array_of(arg), literal=self.known)
            return var
        if isinstance(arg, torch.dtype):
            return DType(str(arg).removeprefix("torch."))
        if isinstance(arg, (list, tuple)):
            return tuple(map(self.argument, arg))
        return arg

    def evaluate(
        self, op: str, args: Any, kwargs: Mapping[str, Any], expected: list[torch.Tensor]
    ) -> tuple[tuple[Number, ...], list[str]]:
        """The rule's results, and the reasons for which it left anything closed."""
        places = tuple(self.argument(arg) for arg in args)
        named = {name: self.argument(arg) for name, arg in kwargs.items() if name not in PLACES}
        outs = tuple(self.variable(tensor) for tensor in expected)
        node = Node(op, places, named, outs, draw=DRAW)
        notes: list[str] = []
        graph = Graph({}, {}, (node,), self.types, {})
        return evaluate_node(self.algebra, node, graph, self.values, notes.append), notes


def compare(bench: Bench, op: str, args: Any, kwargs: Mapping[str, Any], expected: list[torch.Tensor]) -> None:
    """Every result of the rule is PyTorch's, in kind and in numbers."""
    found, notes = bench.evaluate(op, args, kwargs, expected)
    assert not notes, f"{op} stayed closed: {notes}"
    for number, tensor in zip(found, expected, strict=True):
        kind = (
            "bool"
            if tensor.dtype == torch.bool
            else "float"
            if tensor.is_floating_point() or tensor.is_complex()
            else "int"
        )
        assert number.kind == kind, op
        np.testing.assert_allclose(number.array, array_of(tensor), rtol=1e-7, atol=1e-9, err_msg=op)


def operator(op: str) -> Callable[..., Any]:
    """PyTorch's function of a dotted name."""
    namespace, name, overload = op.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)  # type: ignore[no-any-return]


class RuleMode(TorchDispatchMode):
    """While active, compares every operator that PyTorch runs with its rule; ``wrong`` collects what disagrees."""

    def __init__(self, closed: Mapping[str, Callable[..., np.ndarray]]) -> None:
        super().__init__()
        self.closed = closed
        self.seen: set[str] = set()
        self.wrong: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kept = tree_map(lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
        result = func(*args, **kwargs)
        written = [
            arg
            for arg, of in zip(args, func._schema.arguments, strict=False)
            if of.alias_info and of.alias_info.is_write
        ]
        op = str(func)
        if not _outside(op):
            self.seen.add(op)
            self._compare(op, kept, tensors_of(written) or tensors_of(result))
        return result

    def _compare(self, op: str, call: Any, expected: list[torch.Tensor]) -> None:
        try:
            compare(Bench(Numbers(opaque=self.closed)), op, *call, expected)
        except (AssertionError, Unsupported, ValueError, TypeError, ArithmeticError, LookupError) as error:
            self.wrong.append(f"{op}: {error}")


#: What is no function of its operands, or no operator of a traced program: memory, random draws, `out=` and `_foreach_` forms, reads by the host.
_OUTSIDE = (
    "empty",
    "rand",
    "normal",
    "uniform",
    "bernoulli",
    "_local_scalar_dense",
    "item",
    "_foreach_",
    ".out",
    "record_function",
)


def _outside(op: str) -> bool:
    return op.startswith("prim") or any(part in op for part in _OUTSIDE)
