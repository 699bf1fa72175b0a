"""Complex tensors: a value of one dim more, of extent 2, that holds real and imaginary part.

Operators that are linear over the reals (layout, sums, products with real numbers) act on the parts; the others are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final, TypeAlias

from graphguard.ir import Graph, Node, Var
from graphguard.ops.table import traits_of
from graphguard.relations.algebra import Algebra, Unsupported, V
from graphguard.rules.basis.arithmetic import (
    aligned,
    as_float,
    chosen,
    expanded,
    function,
    is_number,
    minus,
    negative,
    over,
    plus,
    root,
    square,
    times,
)
from graphguard.rules.basis.registry import COMPLEX_PART, Rule, concrete_shape, is_complex
from graphguard.rules.basis.scalars import exact
from graphguard.rules.lines.fourier import of_complex, of_real, paired, parts, to_real

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
        "aten.div.Scalar",
        "aten.mul.Scalar",
        "aten.unfold_backward.default",
        "aten.reflection_pad1d_backward.default",
        "aten.reflection_pad2d_backward.default",
        "aten.reflection_pad3d_backward.default",
        "aten.replication_pad1d_backward.default",
        "aten.replication_pad2d_backward.default",
        "aten.replication_pad3d_backward.default",
        "aten.zeros_like.default",
        "aten.zeros.default",
        "aten.new_zeros.default",
    }
)
ADDITIVE: Final = frozenset({"aten.add.Tensor", "aten.sub.Tensor"})
#: Products, linear in each of their two operands.
BILINEAR: Final = frozenset({"aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default"})

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

LARGEST_POWER: Final = 8
Parts: TypeAlias = tuple[Any, Any]
Apply: TypeAlias = Callable[[Rule, Mapping[Var, V]], tuple[V, ...]]


def has_complex(node: Node, graph: Graph) -> bool:
    """Whether the call reads or makes a complex tensor."""
    types = graph.types
    return not COMPLEX_PART.keys().isdisjoint([types[var].dtype for var in (*node.outs, *node.operands())])


def evaluate_complex(
    a: Algebra[V],
    rule: Rule | None,
    node: Node,
    graph: Graph,
    values: Mapping[Var, V],
    apply_rule: Apply[V],
) -> tuple[V, ...]:
    """The results of a call with complex operands or results; ``apply_rule`` runs a rule on other values of the operands."""
    op = node.op if rule is None else rule.name  # an in-place operator's is its twin's
    if op in FILLS:
        return (_filled(a, node, graph, FILLS[op]),)
    base = op.removesuffix(".default")
    if base in ("aten.view_as_real", "aten.view_as_complex"):
        return (values[next(node.operands())],)
    special = _SPECIAL.get(base) or _SPECIAL.get(base.rpartition(".")[0])
    if special is not None and not _has_weight(node):
        operands = [_operand(a, graph, values, arg) for arg in node.args]
        return (special(a, *operands),)
    if rule is None:
        raise Unsupported(f"{node.op} of complex numbers")
    if op in BILINEAR:
        return _bilinear(a, rule, node, graph, values, apply_rule)
    if (traits_of(op).moves and not _fills_with_number(node)) or op in BY_PARTS or op in ADDITIVE:
        return _by_parts(a, rule, node, graph, values, apply_rule)
    raise Unsupported(f"{node.op} of complex numbers")


def _has_weight(node: Node) -> bool:
    """Whether the second operand of a sum is multiplied by a number."""
    return "alpha" in node.kwargs


def _fills_with_number(node: Node) -> bool:
    """Whether a layout puts a number other than zero somewhere: it is real, so no number of the imaginary part."""
    value = node.args[2] if node.op == "aten.constant_pad_nd.default" and len(node.args) > 2 else 0
    return bool(value)


def _filled(a: Algebra[V], node: Node, graph: Graph, place: int | None) -> V:
    """A real number everywhere."""
    shape = concrete_shape(graph.types[node.outs[0]])
    number = 1 if place is None else node.args[place]
    if not isinstance(number, int | float):
        raise Unsupported(f"{node.op} of complex numbers")
    return paired(a, a.full(shape, exact(number), "float"), a.full(shape, Fraction(0), "float"))


def _bilinear(
    a: Algebra[V],
    rule: Rule,
    node: Node,
    graph: Graph,
    values: Mapping[Var, V],
    apply_rule: Apply[V],
) -> tuple[V, ...]:
    """(xr + i xi)(yr + i yi) of a product of any two tensors, parts of real ones absent."""
    x, y = (_operand(a, graph, values, arg) for arg in node.args)

    def of(first: Any, second: Any) -> Any:
        made: dict[Any, Any] = dict(zip(node.args, (first, second), strict=True))
        return apply_rule(rule, made)[0]

    if node.args[0] == node.args[1]:
        raise Unsupported(f"{node.op} of a complex tensor with itself")
    real, imaginary = [of(x[0], y[0])], []
    if x[1] is not None and y[1] is not None:
        real.append(negative(a, of(x[1], y[1])))
    if y[1] is not None:
        imaginary.append(of(x[0], y[1]))
    if x[1] is not None:
        imaginary.append(of(x[1], y[0]))
    return (paired(a, a.add(real), a.add(imaginary)),)


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
            sides[1][var] = a.full(v.shape, Fraction(0), v.kind) if rule.name in ADDITIVE else v
    if rule.name in ADDITIVE and any(is_number(arg) for arg in node.args):
        raise Unsupported("a complex tensor plus a multiple of a number")
    real, imaginary = (apply_rule(rule, side) for side in sides)
    return tuple(paired(a, r, i) for r, i in zip(real, imaginary, strict=True))


def _operand(a: Algebra[V], graph: Graph, values: Mapping[Var, V], arg: Any) -> Any:
    """A complex tensor as its two parts, a real one with imaginary part None, anything else as it is."""
    if not isinstance(arg, Var):
        return arg
    v = values[arg]
    return parts(a, v) if is_complex(graph.types[arg].dtype) else (v, None)


def _complex(a: Algebra[V], real: Parts, imaginary: Parts) -> V:
    return paired(a, *aligned(a, real[0], imaginary[0]))


def _polar(a: Algebra[V], size: Parts, angle: Parts) -> V:
    return paired(a, times(a, size[0], function(a, "cos", angle[0])), times(a, size[0], function(a, "sin", angle[0])))


def _add(a: Algebra[V], x: Parts, y: Any) -> V:
    """xr + yr + i (xi + yi), numbers and parts that are None real."""
    if is_number(y):
        y = (y, None)
    real = plus(a, x[0], y[0])
    whole = [expanded(a, part, real.shape) for part in (x[1], y[1]) if part is not None]
    return paired(a, real, whole[0] if len(whole) == 1 else a.add(whole))


def _subtract(a: Algebra[V], x: Parts, y: Any) -> V:
    return _add(a, x, -y if is_number(y) else _negated(a, y))


def _subtract_from(a: Algebra[V], x: Parts, y: Any) -> V:
    """y - x."""
    return _add(a, _negated(a, x), y)


def _negated(a: Algebra[V], x: Parts) -> Parts:
    return negative(a, x[0]), None if x[1] is None else negative(a, x[1])


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


def _divide(a: Algebra[V], x: Parts, y: Any) -> V:
    """x conj(y) / abs(y)^2."""
    if is_number(y) or y[1] is None:
        divisor = y if is_number(y) else y[0]
        return paired(a, over(a, x[0], divisor), over(a, x[1], divisor))
    return _multiply(a, x, _inverse(a, y))


def _inverse(a: Algebra[V], x: Parts) -> Parts:
    size = plus(a, square(a, x[0]), square(a, x[1]))
    return over(a, x[0], size), negative(a, over(a, x[1], size))


def _reciprocal(a: Algebra[V], x: Parts) -> V:
    real, imaginary = _inverse(a, x)
    result: V = paired(a, real, imaginary)
    return result


def _exponential(a: Algebra[V], x: Parts) -> V:
    return _polar(a, (a.exp(x[0]), None), (x[1], None))


def _logarithm(a: Algebra[V], x: Parts) -> V:
    return paired(a, a.log(_absolute(a, x)), _angle(a, x))


def _angle(a: Algebra[V], x: Parts) -> V:
    angle: V = a.apply("atan2", (), [x[1], x[0]], "float")
    return angle


def _power(a: Algebra[V], x: Parts, exponent: Any) -> V:
    """x to a small whole power, as a product."""
    if not is_number(exponent) or exponent not in range(1, LARGEST_POWER + 1):
        raise Unsupported(f"a complex number to the power {exponent}")
    result: V = paired(a, *x)
    for _ in range(int(exponent) - 1):
        result = _multiply(a, parts(a, result), x)
    return result


def _where(a: Algebra[V], condition: Parts, x: Any, y: Any) -> V:
    """Parts that are None, and numbers, real."""
    x, y = ((each, None) if is_number(each) else each for each in (x, y))
    real = chosen(a, condition[0], x[0], y[0])
    imaginary = chosen(a, condition[0], *(0.0 if each[1] is None else each[1] for each in (x, y)))
    result: V = paired(a, real, expanded(a, imaginary, real.shape))
    return result


def _masked_fill(a: Algebra[V], x: Parts, mask: Parts, value: Any) -> V:
    return _where(a, mask, value, x)


def _conjugate(a: Algebra[V], x: Parts) -> V:
    if x[1] is None:
        real: V = x[0]
        return real
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
        x = (as_float(a, x[0]), a.full(x[0].shape, Fraction(0), "float"))
    result: V = paired(a, *x)
    return result


def _copy(a: Algebra[V], target: Parts, source: Parts) -> V:
    real, imaginary = parts(a, _to_complex(a, source))
    shape = target[0].shape
    return paired(a, expanded(a, real, shape), expanded(a, imaginary, shape))


_SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "aten.complex": _complex,
    "aten.polar": _polar,
    "aten.add.Tensor": _add,
    "aten.sub.Tensor": _subtract,
    "aten.rsub": _subtract_from,
    "aten.mul.Tensor": _multiply,
    "aten.div.Tensor": _divide,
    "aten.reciprocal": _reciprocal,
    "aten.exp": _exponential,
    "aten.log": _logarithm,
    "aten.pow.Tensor_Scalar": _power,
    "aten.where.self": _where,
    "aten.where.ScalarOther": _where,
    "aten.where.ScalarSelf": _where,
    "aten.masked_fill": _masked_fill,
    "aten._conj": _conjugate,
    "aten._conj_physical": _conjugate,
    "aten.conj_physical": _conjugate,
    "aten.abs": _absolute,
    "aten.angle": _angle,
    "aten.sgn": _direction,
    "aten.real": _real,
    "aten.imag": _imaginary,
    "aten._to_copy": _to_complex,
    "aten.copy": _copy,
    "aten._fft_r2c": of_real,
    "aten._fft_c2c": of_complex,
    "aten._fft_c2r": to_real,
}
