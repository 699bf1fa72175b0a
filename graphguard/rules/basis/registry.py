"""The table of rules: what every operator does, by the name PyTorch gives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final, Literal, TypeAlias, TypeVar

from graphguard.ir import DType, Graph, Node, Sym, TensorType, Var
from graphguard.relations.algebra import Kind, Unsupported

Function = TypeVar("Function", bound=Callable[..., Any])

#: Significant bits and exponent bits of every float type; one type holds another where both are at least as large.
FLOAT_BITS: Final[dict[str, tuple[int, int]]] = {
    "float64": (53, 11),
    "float32": (24, 8),
    "bfloat16": (8, 8),
    "float16": (11, 5),
    "float8_e5m2": (3, 5),
    "float8_e5m2fnuz": (3, 5),
    "float8_e4m3fn": (4, 4),
    "float8_e4m3fnuz": (4, 4),
    "float8_e8m0fnu": (1, 8),
}
#: Least number and the one past the most of integer types that programs overflow.
INTEGER_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "int8": (-(1 << 7), 1 << 7),
    "uint8": (0, 1 << 8),
    "int16": (-(1 << 15), 1 << 15),
    "uint16": (0, 1 << 16),
    "uint32": (0, 1 << 32),
}
#: The same of types that hold what programs count and number; where they may not, that is assumed.
WIDE_BOUNDS: Final[dict[str, tuple[int, int]]] = {"int32": (-(1 << 31), 1 << 31)}
COMPLEX_PART: Final[dict[str, str]] = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


@cache
def kind_of(dtype: str) -> Kind:
    """What the elements of a PyTorch type are, or the parts of complex ones; raises ``Unsupported`` for quantised types."""
    if dtype in FLOAT_BITS or dtype in COMPLEX_PART:
        return "float"
    if dtype == "bool":
        return "bool"
    if dtype.startswith(("int", "uint")):
        return "int"
    raise Unsupported(f"elements of type {dtype}")


def is_complex(dtype: str) -> bool:
    """Whether a PyTorch type is complex: its values carry a trailing dim of real and imaginary part."""
    return dtype in COMPLEX_PART


@cache
def holds(wide: str, narrow: str) -> bool:
    """Whether every number of float type ``narrow`` is one of float type ``wide``."""
    return all(w >= n for w, n in zip(FLOAT_BITS[wide], FLOAT_BITS[narrow], strict=True))


@dataclass(slots=True)
class Call:
    """What a rule may know of the call beyond its values: types, and the random draw; ``remarks`` take why a result stays closed."""

    node: Node
    graph: Graph
    parameters: tuple[str, ...] = ()
    remarks: list[str] = field(default_factory=list)

    def type(self, index: int = 0) -> TensorType:
        """Type of a result."""
        return self.graph.types[self.node.outs[index]]

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Shape of a result; raises ``Unsupported`` where it is only known when the program runs."""
        return concrete_shape(self.type(index))

    def kind(self, index: int = 0) -> Kind:
        """Kind of a result."""
        return kind_of(self.type(index).dtype)

    def argument(self, parameter: str) -> Any:
        """The argument as it stands in the graph, tensors as variables; None where it is left out."""
        position = self.parameters.index(parameter)
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(parameter)

    def dtype(self, parameter: str) -> str:
        """Element type of a tensor argument."""
        argument = self.argument(parameter)
        if isinstance(argument, tuple):
            argument = argument[0]
        if not isinstance(argument, Var):
            raise Unsupported(f"argument {parameter} is no tensor")
        return self.graph.types[argument].dtype

    def reads(self, index: int) -> bool:
        """Whether the program makes use of a result."""
        mine = self.node.outs[index]
        return mine in self.graph.outputs.values() or any(mine in node.reads for node in self.graph.nodes)

    @property
    def draw(self) -> tuple[str, int]:
        """The random draw of this call; raises ``Unsupported`` where the capture names none."""
        if self.node.draw is None:
            raise Unsupported("a random operator without a named draw")
        return self.node.draw


def concrete_shape(kind: TensorType) -> tuple[int, ...]:
    """The extents, all known; raises ``Unsupported`` otherwise."""
    for extent in kind.shape:
        if extent.__class__ is not int and isinstance(extent, Sym):
            raise Unsupported(f"a size known only when the program runs: {extent.expr}")
    return kind.shape  # type: ignore[return-value]


#: What the results are made of: numbers that no operand need have; numbers that are chosen, made or decided; or elements of operands, and zeros, alone.
Gives: TypeAlias = Literal["computed", "chosen", "moved"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What one operator does.

    ``function`` takes an algebra and the arguments of the operator's schema, and ``call`` where it asks for it.  ``casts`` marks elementwise arithmetic: its result is
    rounded where the call stores it in a narrower type than PyTorch's promotion gives (``p.add_(update)`` on a bfloat16 ``p``).
    """

    name: str
    function: Callable[..., Any]
    casts: bool = False
    gives: Gives = "computed"
    parameters: tuple[str, ...] = field(init=False)
    wants_call: bool = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(inspect.signature(self.function).parameters)[1:]
        object.__setattr__(self, "wants_call", "call" in names)
        object.__setattr__(self, "parameters", tuple(name for name in names if name != "call"))

    @property
    def equation(self) -> str:
        """What the rule states: its docstring."""
        return inspect.getdoc(self.function) or ""


RULES: Final[dict[str, Rule]] = {}


def rule(*names: str, casts: bool = False, gives: Gives = "computed") -> Callable[[Function], Function]:
    """Register a function as the rule of the operators of these names; a second rule for a name is an error."""

    def register(function: Function) -> Function:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has a rule already")
            RULES[name] = Rule(name, function, casts, gives)
        return function

    return register


choosing: Final = partial(rule, gives="chosen")
moving: Final = partial(rule, gives="moved")


def find_rule(op: str) -> Rule | None:
    """The rule of an operator; an in-place name without one of its own means its functional twin."""
    found = RULES.get(op)
    if found is None:
        namespace, _, rest = op.partition(".")
        name, dot, overload = rest.partition(".")
        if name.endswith("_") and not name.startswith("__"):
            found = RULES.get(f"{namespace}.{name.rstrip('_')}{dot}{overload}")
    return found


def dtype_name(dtype: DType | None) -> str | None:
    """The name of an optional dtype argument."""
    return None if dtype is None else dtype.name
