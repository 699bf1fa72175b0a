"""One operator call on numbers: which function runs it, with which arguments, and what its results must be."""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from graphguard.confirm.run.elements import DTYPES, FLOATS, NARROW, UnrunnableError, narrows, rounded, size_of, stored
from graphguard.confirm.run.kernels import OURS, REFERENCE
from graphguard.confirm.run.lookups import LOOKUPS
from graphguard.confirm.run.randomness import KERNELS as DRAWN
from graphguard.confirm.run.randomness import generator_of
from graphguard.ir import DType, Graph, Node, Sym, Var
from graphguard.ir.graph import Arg
from graphguard.ops import aten, traits_of
from graphguard.rules.basis.casting import ABSENT
from graphguard.rules.elements.activations import NEGLIGIBLE

# Torch's own operators that do more than compute: a capture is data and may come from anywhere.
_REFUSED: Final = frozenset({"from_file", "_print", "set_data", "save", "load"})
_NAMESPACES: Final = frozenset({"aten", "prims"})


def _packed(x: torch.Tensor) -> torch.Tensor:
    """A copy that is all of its memory, in order: strides and offsets count from where that begins."""
    return x.clone(memory_format=torch.contiguous_format)


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale: bool = False,
    mode: int = 0,
    *rest: Any,
    **options: Any,
) -> tuple[torch.Tensor, ...]:
    """Plain sums keep no bag of every index for the gradient: PyTorch's kernels for float32, in which programs are recorded, work it out again."""
    out, bags, *sizes = torch.ops.aten._embedding_bag(weight, indices, offsets, scale, mode, *rest, **options)
    padding = rest[3] if len(rest) > 3 else options.get("padding_idx", -1)
    return (out, bags[:0] if mode == 0 and padding < 0 else bags, *sizes)


def _softplus(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    """Without PyTorch's threshold, by which it differs from what it stands for by 2e-9: doubles would show that."""
    if threshold < NEGLIGIBLE:
        return torch.ops.aten.softplus(x, beta, threshold)
    return torch.logaddexp(x * beta, torch.zeros_like(x)) / beta


def _softplus_backward(grad: torch.Tensor, x: torch.Tensor, beta: float, threshold: float) -> torch.Tensor:
    if threshold < NEGLIGIBLE:
        return torch.ops.aten.softplus_backward(grad, x, beta, threshold)
    return grad * torch.sigmoid(x * beta)


# A graph has value semantics, so these must not depend on strides.
_BY_VALUE: Final[dict[str, Callable[..., Any]]] = {
    aten.view.default: torch.reshape,
    aten._unsafe_view.default: torch.reshape,
    aten.as_strided.default: lambda x, *args: torch.as_strided(_packed(x), *args).clone(),
    aten.as_strided_copy.default: lambda x, *args: torch.as_strided(_packed(x), *args).clone(),
    aten.as_strided_scatter.default: lambda x, src, *args: torch.as_strided_scatter(_packed(x), src, *args),
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
    aten.softplus.default: _softplus,
    aten.softplus_backward.default: _softplus_backward,
    aten.alias.default: lambda x: x,
    aten.detach.default: lambda x: x,
    aten.lift_fresh_copy.default: lambda x: x,
    aten._assert_async.msg: lambda *_: None,
}
_INNER: Final = (
    "aten._",
    "aten.native_",
)  # kernels that public operators call with dense operands; some read any operand as if it were
ELEMENT: Final = 20.0  # multiplications of a product in the time that an element of another result takes


@functools.cache
def function_of(op: str) -> Callable[..., Any]:
    """What runs an operator; raises :class:`UnrunnableError` for one that is unknown or that mutates."""
    for table in (OURS, REFERENCE, LOOKUPS, _BY_VALUE):
        if op in table:
            return table[op]
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    if namespace not in _NAMESPACES or name in _REFUSED:
        raise UnrunnableError(f"no kernel for '{op}' on this machine")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    except AttributeError:
        raise UnrunnableError(f"torch {torch.__version__} has no operator '{op}'") from None
    if found._schema.is_mutable:  # noqa: SLF001 - torch gives no public way to ask
        raise UnrunnableError(f"'{op}' mutates its operand")
    return found


def call(
    graph: Graph, node: Node, values: Mapping[Var, torch.Tensor], sharp: frozenset[str]
) -> tuple[torch.Tensor, ...]:
    """The results of one call, held as :mod:`graphguard.confirm.run.elements` says.

    ``sharp`` are float types in which arithmetic is rounded too, not only casts.
    """
    function = function_of(node.op)
    args = [argument(graph, arg, values) for arg in node.args]
    kwargs = {name: argument(graph, arg, values) for name, arg in node.kwargs.items()}
    if node.op.startswith(_INNER):
        args = [_contiguous(arg) for arg in args]
    if node.op.startswith(aten.view.dtype):
        _refuse_bits_of_reals(graph, node)
    try:
        try:
            produced = _run(graph, function, node, args, kwargs)
        except RuntimeError:
            dense = [_contiguous(arg) for arg in args]
            if all(new is old for new, old in zip(dense, args, strict=True)):
                raise
            produced = _run(
                graph, function, node, dense, kwargs
            )  # some kernels take dense operands only, and a graph has no strides
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        raise UnrunnableError(f"'{node.op}' failed on numbers: {first_line(error)}") from error
    return _settled(graph, node, produced, sharp)


def _refuse_bits_of_reals(graph: Graph, node: Node) -> None:
    """Whole numbers are held as their type has them, so their bits are known; those of a real number are not."""
    kinds = [graph.types[var].dtype for var in (*node.operands(), *node.outs)]
    if not all(kind.startswith(("int", "uint")) for kind in kinds):
        raise UnrunnableError("a reinterpretation of the bits of a float is not a function of numbers")


def _contiguous(arg: Any) -> Any:
    """An argument with its tensors dense; itself where they are."""
    if isinstance(arg, torch.Tensor):
        return arg.contiguous()
    if isinstance(arg, list) and any(isinstance(item, torch.Tensor) and not item.is_contiguous() for item in arg):
        return [_contiguous(item) for item in arg]
    return arg


def first_line(error: Exception) -> str:
    """The first line of an error's text."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def argument(graph: Graph, arg: Arg, values: Mapping[Var, torch.Tensor]) -> Any:
    """An argument as torch takes it."""
    if isinstance(arg, Var):
        return values[arg]
    if isinstance(arg, DType):
        return stored(arg.name) if arg.name in DTYPES else _unknown_type(arg.name)
    if isinstance(arg, Sym):
        return number_of(graph, arg, values)
    if isinstance(arg, tuple):
        return [argument(graph, item, values) for item in arg]
    return arg


def _unknown_type(name: str) -> Any:
    raise UnrunnableError(f"element type '{name}' has no numbers here")


Number = int | float
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
}
_FUNCTIONS: Final[dict[str, Callable[..., Number]]] = {
    "Max": max,
    "Min": min,
    "Abs": abs,
    "ToFloat": float,
    "FloatTrueDiv": operator.truediv,
    "IntTrueDiv": operator.truediv,
    "FloatPow": math.pow,
    "PowByNatural": math.pow,
    "OpaqueUnaryFn_sqrt": math.sqrt,
}


def measured_by(graph: Graph, symbol: str) -> tuple[Var, int] | None:
    """The first tensor of the program that has a symbol as its extent, and the dim: what an operator found, such as the number of elements that are not zero."""
    for var, kind in graph.types.items():
        for dim, size in enumerate(kind.shape):
            if isinstance(size, Sym) and size.expr == symbol:
                return var, dim
    return None


def number_of(graph: Graph, number: Sym, values: Mapping[Var, torch.Tensor]) -> Number:
    """The number that an expression over sizes, and over numbers that the program read, has in this run."""

    def evaluate(node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as literal):
                return literal
            case ast.Name(id=name) if name in graph.symbols:
                return _read(graph, graph.symbols[name], values)
            case ast.Name(id=name) if (measured := measured_by(graph, name)) is not None:
                return int(values[measured[0]].shape[measured[1]])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -evaluate(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](evaluate(left), evaluate(right))
            case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(evaluate(item) for item in args))
            case _:
                raise UnrunnableError(f"number '{number.expr}' cannot be computed")

    try:
        return evaluate(ast.parse(number.expr, mode="eval").body)
    except (SyntaxError, ArithmeticError, ValueError, KeyError) as error:
        raise UnrunnableError(f"number '{number.expr}' cannot be computed") from error


def _read(graph: Graph, var: Var, values: Mapping[Var, torch.Tensor]) -> Number:
    """What ``item()`` gives: a whole number of a tensor of whole numbers, in whichever type this run has them."""
    found = values[var].item()
    return float(found) if graph.types[var].dtype.startswith(("float", "bfloat")) else int(found)


def _run(
    graph: Graph, function: Callable[..., Any], node: Node, args: list[Any], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    if node.draw is None:
        produced = function(*args, **kwargs)
    elif node.op in DRAWN:
        shape = tuple(size for size in graph.types[node.outs[0]].shape if isinstance(size, int))
        produced = DRAWN[node.op](node.draw, shape, *args, **{k: v for k, v in kwargs.items() if k not in _TYPED})
    else:
        with torch.random.fork_rng(devices=[]):
            # As the rules have it: beside generator and call, a draw is a function of the operator, its parameters and the shape.
            torch.manual_seed(generator_of(node.draw, node.op, [_described(arg) for arg in args]).initial_seed())
            produced = function(*args, **kwargs)
    if produced is None:
        return ()
    return tuple(produced) if isinstance(produced, tuple | list) else (produced,)


_TYPED: Final = frozenset({"dtype", "generator"})


def _described(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return tuple(item.shape)
    return [_described(part) for part in item] if isinstance(item, list) else repr(item)


def _settled(graph: Graph, node: Node, produced: tuple[Any, ...], sharp: frozenset[str]) -> tuple[torch.Tensor, ...]:
    if len(produced) < len(node.outs):
        raise UnrunnableError(f"'{node.op}' gave {len(produced)} results, the graph has {len(node.outs)}")
    return tuple(_settle(graph, node, out, value, sharp) for out, value in zip(node.outs, produced, strict=False))


def _settle(graph: Graph, node: Node, out: Var, value: torch.Tensor | None, sharp: frozenset[str]) -> torch.Tensor:
    declared = graph.types[out]
    if declared.dtype == ABSENT:
        return torch.empty(0, dtype=torch.float64)
    if value is None:
        raise UnrunnableError(f"'{node.op}' left out a result that the graph has")
    dtype = stored(declared.dtype) if declared.dtype in DTYPES else _unknown_type(declared.dtype)
    if value.dtype != dtype:
        if (value.dtype == torch.bool) != (dtype == torch.bool) and dtype == torch.bool:
            raise UnrunnableError(f"'{node.op}' gave {value.dtype}, the graph says {declared.dtype}")
        value = value.to(dtype)
    if all(isinstance(size, int) for size in declared.shape) and tuple(value.shape) != declared.shape:
        raise UnrunnableError(f"'{node.op}' gave shape {tuple(value.shape)}, the graph says {declared.shape}")
    if declared.dtype in FLOATS and (declared.dtype in sharp or _is_narrowing(graph, node, declared.dtype)):
        return rounded(value, declared.dtype)
    return value


def _is_narrowing(graph: Graph, node: Node, target: str) -> bool:
    """Whether the call makes numbers of a narrow type, or casts an operand to one: a cast operator, or one that takes a type and narrows to it."""
    operands = [graph.types[operand].dtype for operand in node.operands()]
    if target in NARROW and not any(dtype in FLOATS for dtype in operands):
        return True
    casts = traits_of(node.op).casts or any(isinstance(arg, DType) for arg in (*node.args, *node.kwargs.values()))
    return casts and any(narrows(dtype, target) for dtype in operands)


def is_cast(graph: Graph, node: Node) -> bool:
    """Whether a call is a cast of one tensor to a narrower float type, and nothing else."""
    if not traits_of(node.op).casts or len(node.outs) != 1 or not node.args or not isinstance(node.args[0], Var):
        return False
    return narrows(graph.types[node.args[0]].dtype, graph.types[node.outs[0]].dtype)


def cost_of(graph: Graph, node: Node) -> float:
    """Roughly how many multiplications a call takes: of contractions, the contracted extent times the elements of the result.

    What does little with every element waits for memory.
    """
    sizes = [_elements(graph, out) for out in node.outs]
    if not sizes:
        return 0.0
    name = node.op.split(".")[1]
    operands = [graph.types[operand].shape for operand in node.operands()]
    if name in {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "mv", "dot"}:
        return float(max(sizes)) * size_of(
            operands[-2:][0][-1]
        )  # of a product and what is added to it, the last but one is a factor
    if name.startswith("sdpa"):
        lengths = [size_of(shape[-2]) for shape in operands if len(shape) > 1]
        return 2.0 * max(sizes) * max(lengths, default=1)
    if name.startswith("convolution"):
        backward = name.endswith("backward")
        image, kernel = (operands[0], operands[2]) if backward else (graph.types[node.outs[0]].shape, operands[1])
        return float(math.prod(map(size_of, (*image, *kernel[1:]))))
    return ELEMENT * float(sum(sizes))


def _elements(graph: Graph, var: Var) -> int:
    return math.prod(size_of(size) for size in graph.types[var].shape)
