"""What PyTorch's kernels refuse and its shape functions do not: operands of element types that no kernel takes, and of shapes that do not fit.

PyTorch is asked, not a list: the kernel runs on a few real numbers of the same types.  A call is refused where it raises and the same call on other types does not, so that nothing but the types can be the reason.
``mm`` of float32 and bfloat16, a subtraction from a truth, and ``mul_`` of an integer tensor by 0.5 are.  Shapes are asked about as well, of large operands on smaller ones that fit together alike
(:mod:`~graphguard.trace.calls.shrunk`): ``F.linear`` with a bias of two for a weight of one row raises, and does not where every dim is two.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import torch

from graphguard.ops import traits_of
from graphguard.trace.calls.geometry import stride_of
from graphguard.trace.calls.kinds import Kind
from graphguard.trace.calls.shrunk import KEPT, laid_out, order_of, smaller

Error: TypeAlias = tuple[type[Exception], str]

_NAMESPACES: Final = frozenset(("aten", "prims"))
_MOST: Final = 1 << 10  # numbers of the operands together; of larger ones smaller ones are made
_MOST_SMALLER: Final = 1 << 15
_LEAST: Final = (KEPT, KEPT + 5)  # above which extents are chosen: twice, so that none of them is the reason
_LONG: Final = 1 << 10  # of a number among the arguments that may be a size
_LARGE: Final = 1 << 12  # of several together
_APART: Final = 4  # operands of which each is given other types
_PLAIN: Final = (bool, float, complex, str, torch.dtype, torch.layout, torch.memory_format, type(None))
_SYMBOLS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NARROW: Final = frozenset(
    (
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    )
)
#: A type that other devices have kernels for.
_ONLY_HERE: Final = re.compile(r"'?(Half|BFloat16|Float8\w*)'?$")


class _Unplain(Exception):  # noqa: N818 - no error: the call is not one to ask about
    """A call with an argument that has no real counterpart."""


_known: dict[Any, Error | None] = {}


def refuse_types(kind: Kind, args: Any, kwargs: Any) -> None:
    """Raise the error that a kernel would, where there is none for operands of these element types."""
    if kind.operator.namespace not in _NAMESPACES:
        return
    try:
        operands = list(_tensors((args, kwargs)))
        key = (kind, torch.get_default_dtype(), *_described(args), *kwargs, *_described(kwargs.values()))
        if key not in _known:
            _known[key] = _refusal(kind, args, kwargs, operands)
    except (_Unplain, TypeError):  # TypeError: an argument that has no hash
        return
    if (known := _known[key]) is not None:
        raise known[0](known[1])


def ask_kernel(kind: Kind, args: Any, kwargs: Any) -> list[tuple[int, ...]] | None:
    """What PyTorch's kernel for CPUs does with operands of these shapes: raise its error where the shapes are the reason, or how its results lie.

    Strides, or an ``Order`` of dims where the operands are large and smaller ones were asked about; None where nothing was, or row by row is what everybody expects.
    """
    if kind.operator.namespace not in _NAMESPACES or kind.is_random or kind.needs_values:
        return None
    operands = list(_tensors((args, kwargs)))
    if not operands or any(map(_is_symbol, (*args, *kwargs.values()))) or not all(map(_is_plain, operands)):
        return None
    if not _is_of_places(kind) and any(map(_counts, operands)):
        return None  # lengths, offsets: whether they fit the other operands is a matter of their numbers
    extents = [{}] if all(map(_is_small, operands)) and _together(operands) <= _MOST else list(_smaller(operands))
    if not extents:
        return None
    types = [operand.dtype for operand in operands]
    try:
        found = _tried(kind, args, kwargs, extents[0], types)
        if isinstance(found, Exception):
            _raise_for_shapes(found, kind, args, kwargs, extents, types)
            return None
    except _Unplain:
        return None
    lie_otherwise = not all(each.is_contiguous() for each in operands)
    is_here = all(each.device.type == "cpu" for each in operands)  # other devices have kernels of their own
    results = found if isinstance(found, (list, tuple)) else (found,)
    if not lie_otherwise or not is_here or not all(isinstance(each, torch.Tensor) for each in results):
        return None
    return [(order_of(each) or ()) if extents[0] else tuple(stride_of(each)) for each in results]


def _raise_for_shapes(
    found: Exception, kind: Kind, args: Any, kwargs: Any, extents: list[dict[int, int]], types: list[torch.dtype]
) -> None:
    """Raise what a kernel raised, if it does so whatever the numbers are, and not where all dims are equal.

    Of smaller operands, if it does so at all extents that were tried, and PyTorch's own rules for shapes, which took the large ones, take each of these.
    """
    if isinstance(found, NotImplementedError) or _error(kind, args, kwargs, extents[0], types, place=1) is None:
        return
    if extents[0]:
        known = {*(size for each in extents for size in each), *range(KEPT + 1)}
        if not set(_numbers((args, kwargs))) <= known:
            return  # a number that may have to fit the others
        if any(_error(kind, args, kwargs, each, types) is None for each in extents):
            return
        if any(_error(kind, args, kwargs, each, types, device="meta") is not None for each in extents):
            return
    equal = {size: 2 for operand in _tensors((args, kwargs)) for size in operand.shape}
    for sizes in (_Dims(equal), equal):  # numbers among the arguments may be sizes, or say which dim
        if (
            _error(kind, args, kwargs, sizes, types) is None
            or _error(kind, args, kwargs, sizes, types, place=1) is None
        ):
            raise type(found)(str(found).splitlines()[0])


def _smaller(operands: list[torch.Tensor]) -> Iterator[dict[int, int]]:
    """Two ways to have operands small, or none."""
    for least in _LEAST:
        sizes = smaller((size for operand in operands for size in operand.shape), least)
        if sizes is None or sum(math.prod(sizes.get(n, n) for n in each.shape) for each in operands) > _MOST_SMALLER:
            return
        yield _Smaller(sizes)


def _together(operands: list[torch.Tensor]) -> int:
    return sum(each.numel() for each in operands)


def _numbers(value: Any) -> Iterator[int]:
    """The integers among arguments."""
    if type(value) is int:
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, dict):
        yield from _numbers(list(value.values()))


def _counts(operand: torch.Tensor) -> bool:
    return not (operand.dtype.is_floating_point or operand.dtype.is_complex or operand.dtype is torch.bool)


def _is_of_places(kind: Kind) -> bool:
    """Whether integers among the operands say places, of which the first fits everywhere."""
    traits = traits_of(kind.text)
    return traits.stores or traits.indexes or traits.looks_up is not None or traits.exact == "chosen"


class _Dims(dict[int, int]):
    """Other sizes of dims, and no other numbers."""


class _Smaller(dict[int, int]):
    """Smaller sizes of operands that lie as the large ones do."""


def _is_symbol(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_symbol, value))
    return isinstance(value, _SYMBOLS)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _described(values: Any) -> Iterator[Any]:
    """What of arguments may decide whether types are taken: of a tensor its type, how many dims it has, and whether it is of one element; of a number its type and sign."""
    for value in values:
        if isinstance(value, torch.Tensor):
            one = all(type(size) is int and size == 1 for size in value.shape)
            yield value.dtype, value.dim(), one, value.device.type
        elif isinstance(value, (list, tuple)):
            yield len(value), *_described(value)
        elif isinstance(value, torch.Generator):
            yield torch.Generator
        elif type(value) in (int, float):
            yield type(value), value > 0, value < 0
        elif isinstance(value, _SYMBOLS):
            yield type(value)
        elif isinstance(value, (*_PLAIN, torch.device)):
            yield value
        else:
            raise _Unplain


def _refusal(kind: Kind, args: Any, kwargs: Any, operands: list[torch.Tensor]) -> Error | None:
    is_here = all(operand.device.type == "cpu" for operand in operands)
    sizes, given = _sizes(operands), [operand.dtype for operand in operands]
    found = _error(kind, args, kwargs, sizes, given)
    if found is None or _error(kind, args, kwargs, sizes, given, place=1) is None:
        return None
    if isinstance(found, NotImplementedError) or "CPU" in str(found):
        if not is_here:
            return None
        if _ONLY_HERE.search(str(found).splitlines()[0]):
            found = _error(kind, args, kwargs, sizes, [_widened(dtype) for dtype in given])
    if found is None or all(_error(kind, args, kwargs, sizes, types) is not None for types in _others(given)):
        return None
    return type(found), str(found).splitlines()[0]


def _widened(dtype: torch.dtype) -> torch.dtype:
    """Types of which each is as wide among the others as it was, and has kernels everywhere."""
    return torch.float32 if dtype in _NARROW else torch.float64 if dtype is torch.float32 else dtype


def _others(given: list[torch.dtype]) -> Iterator[list[torch.dtype]]:
    """Other types for operands; of many operands, those of one type alike."""
    kinds = list(range(len(given))) if len(given) <= _APART else given
    distinct = list(dict.fromkeys(kinds))
    for chosen in itertools.product((torch.float32, torch.int64, torch.bool), repeat=min(len(distinct), _APART)):
        types = dict(zip(distinct, chosen, strict=False))
        yield [types.get(kind, dtype) for kind, dtype in zip(kinds, given, strict=True)]


def _sizes(operands: list[torch.Tensor]) -> dict[int, int]:
    """Which sizes are others in the trial: none, where the operands are small."""
    known = [[size if type(size) is int else 2 for size in operand.shape] for operand in operands]
    if sum(map(math.prod, known)) <= _MOST:
        return {}
    return {size: 2 for shape in known for size in shape if size > KEPT}


def _error(
    kind: Kind,
    args: Any,
    kwargs: Any,
    sizes: dict[int, int],
    types: Iterable[torch.dtype],
    place: int = 0,
    device: str = "cpu",
) -> Exception | None:
    """What the kernel raises on real numbers of these types: of those that may be places all are ``place``, the others 1 - ``place``."""
    try:
        found = _tried(kind, args, kwargs, sizes, types, place, device)
    except _Unplain:
        return None
    return found if isinstance(found, Exception) else None


def _tried(
    kind: Kind,
    args: Any,
    kwargs: Any,
    sizes: dict[int, int],
    types: Iterable[torch.dtype],
    place: int = 0,
    device: str = "cpu",
) -> Any:
    """What the kernel for a device returns, or the exception that it raises."""
    taken = _Taken(types, place, device)
    generator = torch.default_generator
    with torch._C._DisableTorchDispatch(), warnings.catch_warnings():  # noqa: SLF001 - below every mode
        warnings.simplefilter("ignore")
        before = generator.get_state()
        try:
            return kind.operator(*_real(args, sizes, taken), **_real(kwargs, sizes, taken))
        except _Unplain:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is: it is what the program would get
            return error
        finally:
            generator.set_state(before)


class _Taken:
    """What the operands of a trial are filled with, and where they are."""

    def __init__(self, types: Iterable[torch.dtype], place: int, device: str) -> None:
        self._types, self._place, self._device = iter(types), place, device

    def filled(self, like: torch.Tensor, sizes: dict[int, int]) -> torch.Tensor:
        """Real numbers in the shape of the next operand, which lie in memory as its elements do where all sizes are known."""
        dtype = next(self._types)
        is_place = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
        made = _filled(like, sizes, self._place if is_place else 1 - self._place).to(dtype)
        return made if self._device == "cpu" else made.to(self._device)

    def device(self) -> torch.device:
        return torch.device(self._device)


def _real(value: Any, sizes: dict[int, int], taken: _Taken) -> Any:
    """An argument of the trial."""
    if isinstance(value, torch.Tensor):
        return taken.filled(value, sizes)
    if isinstance(value, (list, tuple)):
        made = type(value)(_real(each, sizes, taken) for each in value)
        if math.prod(each for each in made if type(each) is int) > _LARGE:
            raise _Unplain
        return made
    if isinstance(value, dict):
        return {name: _real(each, sizes, taken) for name, each in value.items()}
    if type(value) is int:
        if value not in sizes and value > _LONG:
            raise _Unplain
        return value if type(sizes) is _Dims else sizes.get(value, value)
    if isinstance(value, _SYMBOLS):
        return 1.0 if isinstance(value, torch.SymFloat) else 1
    if isinstance(value, torch.Generator):
        return torch.Generator()
    return taken.device() if isinstance(value, torch.device) else value


def _filled(like: torch.Tensor, sizes: dict[int, int], number: int) -> torch.Tensor:
    """Real numbers in the shape of a tensor, which lie in memory as its elements do where all sizes are known."""
    if not sizes and _is_small(like):
        return torch.full((_extent(like),), number, dtype=torch.float32, device="cpu").as_strided(
            like.shape, stride_of(like)
        )
    if type(sizes) is _Smaller:
        made = laid_out(like, sizes, number)
        if made is None:
            raise _Unplain
        return made
    shape = [2 if type(size) is not int else sizes.get(size, size) for size in like.shape]
    return torch.full(shape, number, dtype=torch.float32, device="cpu")


def _is_plain(operand: torch.Tensor) -> bool:
    """Whether a tensor's numbers lie in memory by steps that are known."""
    plain = operand.layout is torch.strided and not operand.is_quantized
    return plain and all(type(size) is int for size in operand.shape)


def _is_small(operand: torch.Tensor) -> bool:
    """Whether a tensor can be had as it lies."""
    return _is_plain(operand) and operand.numel() <= _MOST and _extent(operand) <= _LARGE


def _extent(tensor: torch.Tensor) -> int:
    """How much memory a tensor spans, in elements."""
    steps = zip(tensor.shape, stride_of(tensor), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
