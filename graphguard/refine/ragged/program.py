"""One program that has tensors of a size that the data decides: what its calls make of them.

Operators are evaluated by their ordinary rules, on all slots: what acts on rows one by one does so whether or not they are part of the tensor.  What moves, chooses, orders or adds up rows is
in ``moves``.  Whatever is not seen to be right raises ``Unsupported``, and the call stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

from graphguard.ir import Graph, Node, Sym, TensorType, Var
from graphguard.ir.graph import Arg, Size
from graphguard.ops import aten, operators, traits_of
from graphguard.refine.ragged.orders import Order, Orders, Rows
from graphguard.refine.ragged.rowwise import dim_of_rows, keeps_numbers, targets
from graphguard.refine.ragged.sizes import Cutting
from graphguard.relations.algebra import Unsupported
from graphguard.relations.functions.integers import is_index
from graphguard.relations.prove.normal_form import NormalForm
from graphguard.relations.terms.values import NormalValue
from graphguard.rules import Trait, evaluate_node, kind_of
from graphguard.rules.basis.arithmetic import as_float, expanded, full, minus, over, plus, times
from graphguard.rules.basis.registry import is_complex

_WIDE = ("float32", "float64")  # these hold the few integers that names are
#: Operators that take a number of rows as any other number; the one that makes a tensor of it is a cast.
_TAKING_NUMBERS = operators(lambda op: op.symbol in ("+", "-", "*", "/")) | {aten.rsub.Tensor, aten.rsub.Scalar}
_MADE_OF_NUMBER = aten.scalar_tensor.default


def has_symbols(graph: Graph) -> bool:
    """Whether a program has a tensor of a size that only the data decides."""
    kinds = {id(kind): kind.shape for kind in graph.types.values()}  # most tensors share theirs
    return Sym in map(type, chain.from_iterable(kinds.values()))


@dataclass(frozen=True, slots=True)
class Moves:
    """What is made of operators that move, choose, order or add up rows (see ``moves``): those that sort, those that put rows into a tensor, and what each does."""

    sorts: Collection[str]
    puts: Collection[str]
    by_operator: Mapping[str, Callable[[Any, Node], list[Rows | NormalValue] | None]]


class Ragged:
    """The rows of one program's tensors, beside the values of the others."""

    def __init__(self, algebra: NormalForm, graph: Graph, traits: Mapping[str, Trait], moves: Moves) -> None:
        self.algebra = algebra
        self.moves = moves
        self.graph = graph
        self.traits = traits
        self.orders = Orders(algebra)
        self.cutting = Cutting(self.orders)
        self.rows: dict[Var, Rows] = {}
        self.values: dict[Var, NormalValue] = {}
        self.blanks: dict[Var, Node] = {}
        self._measured: dict[str, Order] = {}
        self._sizes: dict[str, NormalValue] = {}
        self._counted: dict[tuple[Order, str], bool] = {}

    # -- what the evaluator asks

    def concerns(self, node: Node) -> bool:
        """Whether a call has to do with such a tensor."""
        return (
            node.op in self.moves.sorts
            or any(var in self.rows or var in self.blanks for var in node.operands())
            or self._has_sizes(node)
        )

    def call(self, node: Node, values: dict[Var, NormalValue]) -> bool:
        """Evaluate a call if it is one of these: one that has no ordinary operands or results, or whose rows are put where they belong.

        Results that are ordinary tensors go to ``values``.  False for calls that are to be evaluated like any other; raises ``Unsupported``.
        """
        self.values = values
        ordinary = all(var in values for var in node.operands())
        if ordinary and not self._has_sizes(node):
            return self._put_back(node)
        if ordinary and self._is_ordinary(node):
            self._ordinary(node, values)
            return True
        if ordinary and (node.op in _TAKING_NUMBERS or node.op == _MADE_OF_NUMBER):
            self._of_numbers(node, values)
            return True
        for out, rows in zip(node.outs, self._results(node), strict=False):
            self.settle(out, rows, values)
        return True

    def shadows(self, node: Node, values: dict[Var, NormalValue]) -> None:
        """What is known of an ordinary tensor's rows, where they are those of others in another order; nothing where that is not seen."""
        self.values = values
        try:
            results = self._results(node)
        except Unsupported:
            return
        for out, rows in zip(node.outs, results, strict=False):
            if isinstance(rows, Rows) and not (rows.target is None and self.orders.is_plain(rows.order)):
                self.rows[out] = rows

    def _results(self, node: Node) -> list[Rows | NormalValue]:
        move = self.moves.by_operator.get(node.op)
        results = move(self, node) if move is not None else None
        return self._row_by_row(node) if results is None else results

    def _put_back(self, node: Node) -> bool:
        """Whether a call puts rows in places that are known by their order, and what it makes of them."""
        if node.op not in self.moves.puts or not any(var in self.rows for var in node.operands()):
            return False
        try:
            (result,) = self._results(node)
        except Unsupported:
            return False
        if isinstance(result, Rows):
            return False
        self.values[node.outs[0]] = result
        return True

    def _has_sizes(self, node: Node) -> bool:
        types = self.graph.types
        return (
            any(isinstance(size, Sym) for out in node.outs for size in types[out].shape)
            or any(map(_has_size, node.args))
            or any(map(_has_size, node.kwargs.values()))
        )

    def settle(self, var: Var, result: Rows | NormalValue, values: dict[Var, NormalValue]) -> None:
        """Keep a result; rows that are all there and in their places are an ordinary tensor."""
        if isinstance(result, NormalValue):
            values[var] = result
            return
        size = self.graph.types[var].shape[result.dim]
        if isinstance(size, Sym) and size.expr.isidentifier():
            self._measured.setdefault(size.expr, result.order)
        if result.target is None and self.orders.is_plain(result.order):
            values[var] = result.data
            if result.names is None:
                return
        self.rows[var] = result

    def received(self, var: Var, result: Rows | NormalValue, values: dict[Var, NormalValue]) -> None:
        """Keep what another rank sent; raises ``Unsupported`` where it is not seen to have the size that is waited for."""
        self.values = values
        shape = self.graph.types[var].shape
        if isinstance(result, Rows):
            sized = self.orders.same(self.orders.length(result.order), self.orders.number(self.size(shape[result.dim])))
        else:
            sized = all(isinstance(size, int) or self.number(size) == result.shape[at] for at, size in enumerate(shape))
        if not sized:
            raise Unsupported("what is received is not seen to have the size that is waited for")
        self.settle(var, result, values)

    # -- what calls ask

    def rows_of(self, var: Arg, dim: int = 0) -> Rows:
        """A tensor as rows along a dim; raises ``Unsupported``."""
        assert isinstance(var, Var)
        found = self.rows.get(var)
        if found is not None and found.dim == dim:
            return found
        value = self.value_of(var)
        return Rows(value, Order(self.orders.ones(value.shape[dim])), dim)

    def value_of(self, var: Arg) -> NormalValue:
        """An ordinary tensor; raises ``Unsupported``."""
        assert isinstance(var, Var)
        if var not in self.values:
            raise Unsupported("a tensor with as many rows as the data decides, where an ordinary one is expected")
        return self.values[var]

    def orders_so_far(self) -> list[Order]:
        """Orders of rows seen so far, the last ones first."""
        found = {id(rows.order): rows.order for rows in self.rows.values()}
        return list(reversed(found.values()))

    def placed(self, var: Arg, order: Order) -> Rows:
        """A tensor that has the rows of an order; raises ``Unsupported`` where that is not seen."""
        assert isinstance(var, Var)
        made = self.blanks.get(var)
        if made is None:
            rows = self.rows_of(var)
            if rows.target is not None or not self.orders.alike(rows.order, order):
                raise Unsupported("places that are not seen to be those of the rows")
            return rows
        kind = self.graph.types[var]
        if not self.orders.same(self.orders.length(order), self.orders.number(self.size(kind.shape[0]))):
            raise Unsupported("places that are not seen to be those of the rows")
        if made.op == aten.arange.default:
            return self.orders.places(order)
        if made.op == aten.slice.Tensor:
            row = self.one_row(var)
            assert row is not None
            return Rows(expanded(self.algebra, row, (order.slots, *row.shape[1:])), order)
        blank = {one: self.placed(one, order) for one in made.operands() if one in self.blanks}
        if blank:  # computed row by row of such tensors
            (result,) = self._of_rows(made, blank)
            if not isinstance(result, Rows) or result.dim != 0:
                raise Unsupported("places that are not seen to be those of the rows")
            return result
        operands = {one: self.rows[one].data if one in self.rows else self.value_of(one) for one in made.operands()}
        return Rows(self.on_slots(made, operands, order, 0)[0], order)

    def one_row(self, var: Arg) -> NormalValue | None:
        """The row of a tensor whose rows are all alike; None for one of which that is not seen."""
        assert isinstance(var, Var)
        if var in self.rows:
            return None
        if var in self.values:
            value = self.values[var]
            if not value.shape or not value.shape[0]:
                return None
            row = self.algebra.slice(value, 0, 0, 1)
            return row if self.orders.same(expanded(self.algebra, row, value.shape), value) else None
        if var not in self.blanks:
            return None
        made, width = self.blanks[var], self.graph.types[var].shape[1:]
        shape = (1, *(size for size in width if isinstance(size, int)))
        if len(shape) <= len(width) or made.op == aten.arange.default:
            return None
        if made.op == aten.slice.Tensor:
            return self.one_row(made.args[0])
        if made.op == aten.expand.default:
            return expanded(self.algebra, self.value_of(made.args[0]), shape)
        return self._one_row_of(made, shape)

    def _one_row_of(self, made: Node, shape: tuple[int, ...]) -> NormalValue | None:
        """A row of what acts on tensors row by row of which all rows are alike."""
        blank = {one: self.one_row(one) for one in made.operands() if one in self.blanks}
        alike = {one: row for one, row in blank.items() if row is not None}
        if not alike or len(alike) < len(blank):
            return None
        operands = {one: alike[one] if one in alike else self.value_of(one) for one in made.operands()}
        shapes = {one: value.shape for one, value in operands.items()}
        if dim_of_rows(made, shapes, dict.fromkeys(alike, 0)) != 0:
            return None
        called, numbers = self._with_numbers(made)
        return self.evaluated(called, {**operands, **numbers}, {made.outs[0]: shape})[0]

    def lies_within(self, at: Rows, extent: int, always: bool = False) -> None:
        """Duty of places: they are known to lie within, also where slots are not valid, of which a look-up must not state anything; raises ``Unsupported``.

        Where all slots are valid look-ups see to it themselves, unless it is ``always`` to be known before.
        """
        if not always and self.orders.is_full(at.order):
            return
        known = at.names.values if at.names is not None else self.algebra.known(at.data)
        if known is not None:
            inside = min(known, default=0) >= 0 and max(known, default=0) < extent
        else:
            inside = self._is_index(at.data, extent)
        if not inside:
            raise Unsupported("an index that may lie outside the table")

    def _is_index(self, value: NormalValue, extent: int) -> bool:
        universe = self.algebra.universe
        return all(
            is_index(universe, terms, tuple(high - low for low, high in box), extent) for box, terms in value.pieces
        )

    def size(self, size: Arg) -> NormalValue:
        """A size as a number; raises ``Unsupported`` for one that nothing says."""
        if isinstance(size, int):
            return self.algebra.full((), Fraction(size), "int")
        assert isinstance(size, Sym)
        found = self._sizes.get(size.expr)
        if found is None:
            found = self._sizes[size.expr] = self._expression(ast.parse(size.expr, mode="eval").body)
        return found

    def _expression(self, node: ast.expr) -> NormalValue:
        a = self.algebra
        match node:
            case ast.Constant(value=int() | float() as number):
                return full(a, (), number)
            case ast.Name(id=name) if name in self.graph.symbols and self.graph.symbols[name] in self.values:
                return a.reshape(self.values[self.graph.symbols[name]], ())
            case ast.Name(id=name) if name in self._measured:
                return a.number(self.orders.length(self._measured[name]), "int")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return a.scale(self._expression(operand), Fraction(-1))
            case ast.Call(func=ast.Name(id="ToFloat"), args=[operand]):
                return as_float(a, self._expression(operand))
            case ast.BinOp(op=ast.Add()):
                return plus(a, *[self._expression(summand) for summand in _summands(node)])
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return minus(a, self._expression(left), self._expression(right))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return times(a, self._expression(left), self._expression(right))
            case ast.Call(func=ast.Name(id="FloatTrueDiv" | "IntTrueDiv"), args=[left, right]):
                return over(a, self._expression(left), self._expression(right))
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int(divisor))) if divisor > 0:
                return a.floor_divide(self._expression(left), divisor)
        raise Unsupported(f"a size known only when the program runs: {ast.unparse(node)}")

    def number(self, size: Arg) -> int | None:
        """A size that turns out to be one number whatever the data are."""
        if isinstance(size, int):
            return size
        try:
            known = self.algebra.known(self.size(size))
        except Unsupported:
            return None
        return None if known is None else int(known)

    def evaluated(
        self, node: Node, operands: Mapping[Var, NormalValue], shapes: Mapping[Var, tuple[int, ...]]
    ) -> tuple[NormalValue, ...]:
        """A call by the rule of its operator, on these operands, with results of these shapes; raises ``Unsupported`` where it has no rule that follows."""
        known = self.graph.types
        types = {
            var: TensorType(value.shape, known[var].dtype if var in known else "int64")
            for var, value in operands.items()
        }
        types |= {var: TensorType(shape, self.graph.types[var].dtype) for var, shape in shapes.items()}
        if any(is_complex(kind.dtype) for kind in types.values()):
            raise Unsupported("complex numbers in rows that the data decides")
        graph = replace(self.graph, types=types)
        reasons: list[str] = []
        results = evaluate_node(self.algebra, node, graph, operands, reasons.append, self.traits)
        if reasons:
            raise Unsupported(reasons[0])
        if any(result.shape != shapes[out] for out, result in zip(node.outs, results, strict=True)):
            raise Unsupported("rows of another shape than the program says")
        return results

    # -- ordinary calls

    def _is_ordinary(self, node: Node) -> bool:
        sizes = [size for out in node.outs for size in self.graph.types[out].shape if isinstance(size, Sym)]
        sizes += [size for arg in (*node.args, *node.kwargs.values()) for size in _sizes(arg)]
        return all(self.number(size) is not None for size in sizes)

    def _ordinary(self, node: Node, values: dict[Var, NormalValue]) -> None:
        """Every size turns out to be a number."""

        def resolved(size: Sym) -> int:
            number = self.number(size)
            assert number is not None
            return number

        shapes = {
            out: tuple(resolved(size) if isinstance(size, Sym) else size for size in self.graph.types[out].shape)
            for out in node.outs
        }
        operands = {var: values[var] for var in node.operands()}
        results = self.evaluated(_resolved(node, resolved), operands, shapes)
        values.update(zip(node.outs, results, strict=True))
        if any(var in self.rows for var in operands):
            self.shadows(node, values)

    def _of_numbers(self, node: Node, values: dict[Var, NormalValue]) -> None:
        """A call that takes numbers of rows as numbers."""
        shapes: dict[Var, tuple[int, ...]] = {}
        for out in node.outs:
            sizes = self.graph.types[out].shape
            shapes[out] = tuple(size for size in sizes if isinstance(size, int))
            if len(shapes[out]) < len(sizes):
                raise Unsupported("a size known only when the program runs")
        called, numbers = self._with_numbers(node)
        operands = {var: values[var] for var in node.operands()} | numbers
        values.update(zip(node.outs, self.evaluated(called, operands, shapes), strict=True))

    def _with_numbers(self, node: Node) -> tuple[Node, dict[Var, NormalValue]]:
        """A call with numbers of rows as tensors without dims, and these."""
        if node.op not in _TAKING_NUMBERS and node.op != _MADE_OF_NUMBER:
            return node, {}
        numbers: dict[Var, NormalValue] = {}

        def of(arg: Arg) -> Arg:
            if not isinstance(arg, Sym):
                return arg
            var = Var(-1 - len(numbers))  # as no variable of a graph is called
            numbers[var] = self.size(arg)
            return var

        called = replace(node, args=tuple(map(of, node.args)))
        if node.op == _MADE_OF_NUMBER:
            called = replace(called, op=aten._to_copy.default, kwargs={})
        return called, numbers

    # -- calls that act on rows one by one

    def _row_by_row(self, node: Node) -> list[Rows | NormalValue]:
        operands = dict.fromkeys(node.operands())
        with_rows = {var: self.rows[var] for var in operands if var in self.rows}
        blank = [var for var in operands if var in self.blanks]
        if blank and not with_rows and len(node.outs) == 1:
            self.blanks[node.outs[0]] = node
            return []
        if not with_rows:
            raise Unsupported("a size known only when the program runs")
        order = next(iter(with_rows.values())).order
        return self._of_rows(node, with_rows | {var: self.placed(var, order) for var in blank})

    def _of_rows(self, node: Node, with_rows: Mapping[Var, Rows]) -> list[Rows | NormalValue]:
        operands = list(dict.fromkeys(node.operands()))
        first = next(iter(with_rows.values()))
        for other in with_rows.values():
            if other.target is not None and not (keeps_numbers(node) and len(operands) == 1):
                raise Unsupported("computing with places of rows that are known only when the program runs")
            self.orders.need_alike(first.order, other.order)
        shapes = {var: with_rows[var].data.shape if var in with_rows else self.value_of(var).shape for var in operands}
        dims = {var: rows.dim for var, rows in with_rows.items()}
        dim = dim_of_rows(node, shapes, dims)
        named = self._by_names(node, with_rows)
        if named is not None:
            return [replace(named, dim=dim)]
        data = {var: with_rows[var].data if var in with_rows else self.value_of(var) for var in operands}
        results = self.on_slots(node, data, first.order, dim)
        return [
            Rows(result, first.order, dim, target=target)
            for result, target in zip(results, targets(node, first), strict=True)
        ]

    def on_slots(self, node: Node, data: Mapping[Var, NormalValue], order: Order, dim: int) -> tuple[NormalValue, ...]:
        """The call on all slots of its operands; sizes that are the number of rows are that of the slots."""
        slots = order.slots

        def resolved(size: Sym) -> int:
            number = slots if self._counts(order, size) else self.number(size)
            if number is None:
                raise Unsupported(f"a size known only when the program runs: {size.expr}")
            return number

        shapes: dict[Var, tuple[int, ...]] = {}
        for out in node.outs:
            sizes = self.graph.types[out].shape
            if dim >= len(sizes) or not self._counts(order, sizes[dim]):
                raise Unsupported("rows that are not seen to be as many as before")
            shapes[out] = tuple(
                slots if at == dim else resolved(size) if isinstance(size, Sym) else size
                for at, size in enumerate(sizes)
            )
        called, numbers = self._with_numbers(node)
        return self.evaluated(self._reshaped(_resolved(called, resolved), dim, slots), {**data, **numbers}, shapes)

    def _counts(self, order: Order, size: Size) -> bool:
        """Whether a size is seen to be the number of an order's rows."""
        if isinstance(size, int):
            return size == order.slots and self.orders.is_full(order)
        key = (order, size.expr)
        if key not in self._counted:
            self._counted[key] = self.orders.same(self.orders.length(order), self.orders.number(self.size(size)))
        return self._counted[key]

    def _reshaped(self, node: Node, dim: int, slots: int) -> Node:
        """A call that names the extent of the rows' dim names that of the slots."""
        traits = traits_of(node.op)
        if traits.moves is not None and traits.shape_at == 1 and isinstance(node.args[1], tuple):
            shape = tuple(slots if at == dim else size for at, size in enumerate(node.args[1]))
            return replace(node, args=(node.args[0], shape, *node.args[2:]))
        return node

    def _by_names(self, node: Node, with_rows: Mapping[Var, Rows]) -> Rows | None:
        """Integers of few values: the call on every value there is."""
        if len(with_rows) != 1 or len(node.outs) != 1:
            return None
        ((var, rows),) = with_rows.items()
        kind = kind_of(self.graph.types[node.outs[0]].dtype)
        operands = list(node.operands())
        counts = kind != "float" or (node.op == aten._to_copy.default and self.graph.types[node.outs[0]].dtype in _WIDE)
        if rows.names is None or not counts or operands.count(var) != len(operands):
            return None
        if len(self.graph.types[node.outs[0]].shape) != 1:
            return None
        held = float if kind_of(self.graph.types[var].dtype) == "float" else np.int64
        literal = self.algebra.literal(np.asarray(rows.names.values, dtype=held))
        if self._has_sizes(replace(node, outs=())):
            return None
        (result,) = self.evaluated(node, {var: literal}, {node.outs[0]: literal.shape})
        known = self.algebra.known(result)
        if known is None:
            return None
        names = self.orders.renamed(rows.names, [int(value) for value in known])
        return Rows(self.orders.numbered(names, kind), rows.order, 0, names)


def _summands(node: ast.expr) -> list[ast.expr]:
    """All that a sum adds up: put together at once, windows of one axis meet in whatever order they come."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _has_size(arg: Arg) -> bool:
    return isinstance(arg, Sym) or (isinstance(arg, tuple) and any(map(_has_size, arg)))


def _sizes(arg: Arg) -> list[Sym]:
    if isinstance(arg, tuple):
        return [size for item in arg for size in _sizes(item)]
    return [arg] if isinstance(arg, Sym) else []


def _resolved(node: Node, resolved: Callable[[Sym], int]) -> Node:
    """A call with numbers for sizes."""

    def of(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(of(item) for item in arg)
        return resolved(arg) if isinstance(arg, Sym) else arg

    return replace(node, args=tuple(map(of, node.args)), kwargs={name: of(arg) for name, arg in node.kwargs.items()})
