"""Complex tensors: a value of one dim more, of extent 2, that holds real and imaginary part.

Operators that are linear over the reals (layout, sums, products with real numbers) act on the parts; the others are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

from graphguard.ir import Graph, Node, Var
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.arithmetic import function, is_number, minus, negative, over, plus, root, square, times
from graphguard.rules.layout import dropped, inserted
from graphguard.rules.registry import COMPLEX_PART, Rule, concrete_shape, is_complex
from graphguard.rules.scalars import exact

#: Operators of which real and imaginary part of the result are the same function of the parts of the complex operands.
BY_PARTS: Final = frozenset(
    {
        "aten.neg.default",
        "aten.sum.dim_IntList",
        "aten.sum.default",
        "aten.mean.dim",
        "aten.mean.default",
        "aten.cumsum.default",
        "aten.index.Tensor",
        "aten.index_select.default",
        "aten.embedding.default",
        "aten.div.Tensor",
        "aten.div.Scalar",
        "aten.mul.Scalar",
        "aten.zeros_like.default",
        "aten.zeros.default",
        "aten.new_zeros.default",
    }
)
ADDITIVE: Final = frozenset({"aten.add.Tensor", "aten.sub.Tensor"})

#: Operators that fill a tensor with a number, with the place of that number among their arguments, None where it is one.
FILLS: Final[dict[str, int | None]] = {
    "aten.ones.default": None,
    "aten.ones_like.default": None,
    "aten.new_ones.default": None,
    "aten.full.default": 1,
    "aten.full_like.default": 1,
    "aten.fill.Scalar": 1,
    "aten.new_full.default": 2,
}

LAYOUT: Final = frozenset({"layout", "patterns"})

Parts: TypeAlias = tuple[Any, Any]
Apply: TypeAlias = Callable[[Rule, Mapping[Var, V]], tuple[V, ...]]


def has_complex(node: Node, graph: Graph) -> bool:
    """Whether the call reads or makes a complex tensor."""
    types = graph.types
    return not COMPLEX_PART.keys().isdisjoint([types[var].dtype for var in (*node.outs, *node.operands())])


def parts(a: Algebra[V], v: V) -> tuple[V, V]:
    """Real and imaginary part."""
    last = len(v.shape) - 1
    return dropped(a, a.slice(v, last, 0, 1), last), dropped(a, a.slice(v, last, 1, 2), last)


def paired(a: Algebra[V], real: V, imaginary: V) -> V:
    """The complex value of two parts."""
    last = len(real.shape)
    return a.concat([inserted(a, real, last), inserted(a, imaginary, last)], last)


def evaluate_complex(
    a: Algebra[V],
    rule: Rule | None,
    node: Node,
    graph: Graph,
    values: Mapping[Var, V],
    apply_rule: Apply[V],
) -> tuple[V, ...]:
    """The results of a call with complex operands or results; ``apply_rule`` runs a rule on other values of the operands."""
    if node.op in FILLS:
        return (_filled(a, node, graph),)
    base = node.op.removesuffix(".default")
    if base in ("aten.view_as_real", "aten.view_as_complex"):
        return (values[next(node.operands())],)
    special = _SPECIAL.get(base) or _SPECIAL.get(base.rpartition(".")[0])
    if special is not None:
        operands = [_operand(a, graph, values, arg) for arg in node.args]
        return (special(a, *operands),)
    if _divides_by_complex(node, graph):
        raise Unsupported("division by a complex tensor")
    if rule is not None and (rule.family in LAYOUT or node.op in BY_PARTS or node.op in ADDITIVE):
        return _by_parts(a, rule, node, graph, values, apply_rule)
    raise Unsupported(f"{node.op} of complex numbers")


def _filled(a: Algebra[V], node: Node, graph: Graph) -> V:
    """A real number everywhere."""
    shape, place = concrete_shape(graph.types[node.outs[0]]), FILLS[node.op]
    number = 1 if place is None else node.args[place]
    if not isinstance(number, int | float):
        raise Unsupported(f"{node.op} of complex numbers")
    return paired(a, a.full(shape, exact(number), "float"), a.full(shape, Fraction(0), "float"))


def _divides_by_complex(node: Node, graph: Graph) -> bool:
    divisor = node.args[1] if node.op.startswith("aten.div.") and len(node.args) > 1 else None
    return isinstance(divisor, Var) and is_complex(graph.types[divisor].dtype)


def _by_parts(
    a: Algebra[V],
    rule: Rule,
    node: Node,
    graph: Graph,
    values: Mapping[Var, V],
    apply_rule: Apply[V],
) -> tuple[V, ...]:
    sides: list[dict[Var, V]] = [{}, {}]
    for var in node.operands():
        v = values[var]
        if is_complex(graph.types[var].dtype):
            sides[0][var], sides[1][var] = parts(a, v)
        else:
            sides[0][var] = v
            sides[1][var] = a.full(v.shape, Fraction(0), v.kind) if node.op in ADDITIVE else v
    if node.op in ADDITIVE and any(is_number(arg) for arg in node.args):
        raise Unsupported("a complex tensor plus a number")
    real, imaginary = (apply_rule(rule, side) for side in sides)
    return tuple(paired(a, r, i) for r, i in zip(real, imaginary, strict=True))


def _operand(a: Algebra[V], graph: Graph, values: Mapping[Var, V], arg: Any) -> Any:
    """A complex tensor as its two parts, a real one with imaginary part None, anything else as it is."""
    if not isinstance(arg, Var):
        return arg
    v = values[arg]
    return parts(a, v) if is_complex(graph.types[arg].dtype) else (v, None)


def _complex(a: Algebra[V], real: Parts, imaginary: Parts) -> V:
    result: V = paired(a, real[0], imaginary[0])
    return result


def _polar(a: Algebra[V], size: Parts, angle: Parts) -> V:
    return paired(a, times(a, size[0], function(a, "cos", angle[0])), times(a, size[0], function(a, "sin", angle[0])))


def _multiply(a: Algebra[V], x: Parts, y: Any) -> V:
    """(xr + i xi)(yr + i yi), parts that are None absent."""
    if is_number(y):
        y = (y, None)
    if x[1] is None:
        x, y = y, x
    if y[1] is None:
        return paired(a, times(a, x[0], y[0]), times(a, x[1], y[0]))
    real = minus(a, times(a, x[0], y[0]), times(a, x[1], y[1]))
    return paired(a, real, plus(a, times(a, x[0], y[1]), times(a, x[1], y[0])))


def _conjugate(a: Algebra[V], x: Parts) -> V:
    result: V = paired(a, x[0], negative(a, x[1]))
    return result


def _absolute(a: Algebra[V], x: Parts) -> V:
    result: V = root(a, plus(a, square(a, x[0]), square(a, x[1])))
    return result


def _direction(a: Algebra[V], x: Parts) -> V:
    size = _absolute(a, x)
    return paired(a, over(a, x[0], size), over(a, x[1], size))


def _real(_a: Algebra[V], x: Parts) -> V:
    part: V = x[0]
    return part


def _imaginary(_a: Algebra[V], x: Parts) -> V:
    part: V = x[1]
    return part


def _to_complex(a: Algebra[V], x: Parts) -> V:
    if x[1] is None:
        x = (x[0], a.full(x[0].shape, Fraction(0), "float"))
    result: V = paired(a, *x)
    return result


_SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "aten.complex": _complex,
    "aten.polar": _polar,
    "aten.mul.Tensor": _multiply,
    "aten._conj": _conjugate,
    "aten._conj_physical": _conjugate,
    "aten.conj_physical": _conjugate,
    "aten.abs": _absolute,
    "aten.sgn": _direction,
    "aten.real": _real,
    "aten.imag": _imaginary,
    "aten._to_copy": _to_complex,
}
