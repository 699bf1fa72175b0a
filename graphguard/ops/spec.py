"""What may be said of an operator beside its formula: one record of traits, and how a table of them is written.

The model is MLIR's operation definitions (traits beside names) and the tags of PyTorch's ``native_functions.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: What becomes of the elements of the first operand that an operator moves and does not compute with.
#:
#: ``same``: nothing; ``view``: they are read in their order in another shape; ``permute``: dims change places; ``expand``: dims of extent one are repeated; ``part``: some
#: positions of a dim; ``split``: all positions of a dim, over several results; ``join``: several operands along a dim; ``turn``: positions of a dim change places;
#: ``repeat``: positions of a dim come several times; ``pad``: other elements stand around them; ``scatter``: they lie in what another tensor, or zero, leaves of the result;
#: ``stride``: they are read as they lie in memory; ``pattern``: places follow another pattern, such as a diagonal.
Moves = Literal[
    "same",
    "view",
    "permute",
    "expand",
    "part",
    "split",
    "join",
    "turn",
    "repeat",
    "pad",
    "scatter",
    "stride",
    "pattern",
]
Makes = Literal["empty", "zeros", "ones", "full", "range", "identity", "places", "random"]
Reduces = Literal["sum", "mean", "max", "min", "any", "all", "prod", "count", "norm", "spread"]


class LookUp(NamedTuple):
    """Where a look-up has what: position of the table among its arguments, its dim that is looked into (None where the second argument names it), position of the index.

    Without a table the second argument is the number of rows.
    """

    table: int | None
    dim: int | None
    at: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What holds of an operator; what is not said is not known to hold."""

    # Elements and places.
    pointwise: bool = False
    """Every element of a result follows from those in its place, operands being broadcast."""
    moves: Moves | None = None
    like: bool = False
    """The result has the operand's shape, and none of its elements follows from the operand's."""
    along: bool = False
    """Acts on whole lines along the dims that it names, and alone on every position of the others."""
    dim_at: int | None = None
    """Position of the argument that names the dims that it acts along."""
    keepdim_at: int | None = None
    shape_at: int | None = None
    """Position of the argument that is the shape of the result."""

    # Numbers.
    symbol: str = ""
    """What stands between two operands in Python for it."""
    casts: bool = False
    """It gives its operand in another element type."""
    exact: Literal["chosen", "written"] | None = None
    """Rounds nothing: results are numbers of its operands, such with another sign, or zeros; ``written``: or whole numbers, and such that the call says."""
    shifts: bool = False
    """Moves integers by what else it is given."""
    bounds: bool = False
    """Cuts numbers off at what else it is given."""
    steps: bool = False
    """Is constant but for steps in its operand."""
    poles: bool = False
    """Has no number, or an infinity, for some finite operands."""
    of_fractions: bool = False
    """Has numbers for probabilities, and not for most other operands."""
    exponential: bool = False
    """Made of exponentials of what is not known to be of one sign: one program may have it closed and the other written out."""
    asks_finite: bool = False

    # Sums and products.
    reduces: Reduces | None = None
    einsum: tuple[str, str, str] | None = None
    """Letters of its last two operands, whose products it sums, and of its result."""
    product: str = ""
    """The operator that gives the product alone, where it adds its first operand to it."""
    contracts: bool = False
    """Sums products of what it is given."""
    sums: bool = False
    """Sums over a dim, linear in what it sums: of a part of the dim, the result is a partial sum."""

    # Arguments.
    makes: Makes | None = None
    number_at: int | None = None
    """Position of the number that stands where no element of an operand does."""
    mask_at: int | None = None
    """Position of the truths by which elements are replaced."""
    looks_up: LookUp | None = None
    indexes: bool = False
    """Has a tuple of index tensors as its second argument, one a dim of the first."""
    stores: bool = False
    """Writes into its first operand, and gives that in its type."""
    places: int | None = None
    """Which result holds positions along the dim."""
    ties: bool = False
    """Takes places of elements, and promises nothing of which where several are equal."""

    @property
    def compares(self) -> bool:
        """Whether it compares two numbers."""
        return self.symbol in {"<", "<=", ">", ">=", "==", "!="}

    @property
    def same_place(self) -> bool:
        """Whether the result has its operand's shape and every element follows from the one in its place, or from none."""
        return self.pointwise or self.casts or self.moves == "same" or self.like


#: One family: names as :func:`names_in` reads them, and what holds of all of these operators.
Family = Mapping[str, Traits]


def names_in(text: str) -> list[str]:
    """The operators that a line of a family names: ``add.Tensor,Scalar exp gg:sdpa``.

    A name without an overload is its default one; what stands before a colon is a namespace other than PyTorch's own, and such names are whole.
    """
    names: list[str] = []
    for word in text.split():
        space, colon, rest = word.rpartition(":")
        name, dot, overloads = rest.partition(".")
        if colon and not dot:
            names.append(f"{space}.{name}")
            continue
        names += [f"{space or 'aten'}.{name}.{overload}" for overload in (overloads or "default").split(",")]
    return names
