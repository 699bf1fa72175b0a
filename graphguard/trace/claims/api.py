"""The Python interface: what a check file says, and :func:`verify`.

Importing this needs neither torch nor anything else that is not in the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
MARK = "__graphguard_check__"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor input by shape and element type (None: the default one); integers may be bounded, ``high`` excluded."""

    shape: tuple[int, ...]
    dtype: Any = None
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tensor input whose values are part of the claim."""

    value: Any


@dataclass(frozen=True, slots=True)
class Check:
    """What :func:`check` notes on a function: the meshes it is verified on."""

    meshes: tuple[dict[str, int], ...]


@dataclass(frozen=True, slots=True)
class Refinement:
    """The claim that ``impl``, run by every rank of a mesh, refines ``spec``.

    ``spec`` and ``impl`` are modules or functions, ``impl`` the one of the rank that builds it.  ``inputs``: tensors or :func:`tensor`, in
    a tuple or a dict, as ``spec`` takes them.  ``in_relations``: DTensor placements by mesh axis, one dict for every input or a tuple or dict with one, or
    ``"replicate"``, per input; ``shard_inputs(inputs, mesh)`` gives a rank's inputs instead.  ``out_relations``: ``"infer"``, ``"replicate"``, or placements
    as for the inputs.  ``load(spec_state_dict, impl, mesh)`` puts the specification's parameters into the rank's.
    """

    spec: Any
    impl: Any
    inputs: Any
    in_relations: Any = field(default=None, kw_only=True)
    shard_inputs: Callable[[Any, Any], Any] | None = field(default=None, kw_only=True)
    out_relations: Any = field(default="infer", kw_only=True)
    load: Callable[[Any, Any, Any], Any] | None = field(default=None, kw_only=True)
    grads: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class Same:
    """The claim that ``program``, run by every rank of a mesh, refines itself, run by one rank alone.

    The check's function is called for the mesh, and for the mesh whose axes are all 1, in a process of its own whose job has one rank: what it returns
    there is the specification.  ``program`` is a module or a function, ``inputs`` are the whole ones in both; the keywords are those of :class:`Refinement`.
    """

    program: Any
    inputs: Any
    in_relations: Any = field(default=None, kw_only=True)
    shard_inputs: Callable[[Any, Any], Any] | None = field(default=None, kw_only=True)
    out_relations: Any = field(default="infer", kw_only=True)
    load: Callable[[Any, Any, Any], Any] | None = field(default=None, kw_only=True)
    grads: bool = field(default=True, kw_only=True)

    def __new__(cls, *positional: Any, **named: Any) -> Same:
        """Refuse a second program in words: the specification is the first one's run on one rank."""
        if len(positional) > 2 or named.keys() & {"spec", "impl"}:
            raise TypeError(
                "gg.Same takes one program, as in gg.Same(program, inputs=(...)): its run on one rank is the specification;"
                " two programs are gg.Refinement(spec, impl, inputs=(...))"
            )
        return object.__new__(cls)

    def as_refinement(self) -> Refinement:
        """The claim about this world's program."""
        keywords = {one.name: getattr(self, one.name) for one in fields(self) if one.kw_only}
        return Refinement(self.program, self.program, self.inputs, **keywords)


def check(mesh: Mapping[str, int] | Sequence[Mapping[str, int]]) -> Callable[[Function], Function]:
    """Declare a check: the decorated function gets a device mesh and returns a :class:`Refinement` or :class:`Same`.

    ``mesh`` maps axis names to sizes, as ``{"dp": 2, "tp": 4}``; a list of meshes gives one verdict each.  Raises ``ValueError``.
    """
    meshes = (mesh,) if isinstance(mesh, Mapping) else tuple(mesh)
    if not meshes:
        raise ValueError("gg.check needs a mesh, such as mesh={'tp': 2}")
    declared = Check(tuple(as_mesh(one) for one in meshes))

    def mark(function: Function) -> Function:
        setattr(function, MARK, declared)
        return function

    return mark


def as_mesh(mesh: Any) -> dict[str, int]:
    """A mesh as a dict in axis order; raises ``ValueError`` where it is none."""
    if not isinstance(mesh, Mapping) or not mesh:
        raise ValueError(f"a mesh maps axis names to sizes, as in {{'tp': 2}}; found {mesh!r}")
    for axis, size in mesh.items():
        if not isinstance(axis, str) or not axis.isidentifier():
            raise ValueError(f"a mesh axis is named by an identifier, such as 'tp'; found {axis!r}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"the size of mesh axis {axis!r} must be a positive whole number; found {size!r}")
    return dict(mesh)


def tensor(*shape: Any, dtype: Any = None, low: int | None = None, high: int | None = None) -> TensorSpec:
    """An input by shape and dtype; ``low`` and ``high`` (excluded) bound the values of an integer tensor, as for indices; ``high`` alone counts from 0, as ``range`` does."""
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValueError(f"gg.tensor takes the sizes of the dims, as in gg.tensor(2, 8, 64); found {size!r}")
    for name, bound in (("low", low), ("high", high)):
        if bound is not None and type(bound) is not int:
            raise ValueError(f"gg.tensor({name}={bound!r}): bounds are integers, for tensors of integers")
    if (low is not None or high is not None) and _is_inexact(dtype):
        raise ValueError(
            f"gg.tensor({_given(low, high)}) bounds integers, and this tensor holds {_held(dtype)}: give dtype=torch.int64"
        )
    if low is not None and high is not None and low >= high:
        raise ValueError(f"gg.tensor(low={low}, high={high}) holds no value: high is excluded")
    return TensorSpec(shape, dtype, 0 if low is None and high is not None and high > 0 else low, high)


def _given(low: int | None, high: int | None) -> str:
    return ", ".join(f"{name}={bound}" for name, bound in (("low", low), ("high", high)) if bound is not None)


def _is_inexact(dtype: Any) -> bool:
    return dtype is None or bool(getattr(dtype, "is_floating_point", False) or getattr(dtype, "is_complex", False))


def _held(dtype: Any) -> str:
    return "floats by default" if dtype is None else f"{dtype}"


class Gradients(dict[str, Any]):
    """Gradients by the name of their parameter; ``parameters`` are those."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__((name, gradient_in(parameter)) for name, parameter in parameters.items())
        self.parameters = dict(parameters)


def gradients(model: Any) -> Gradients:
    """The gradients of a module's parameters by name, for a function to return: each must stand as its parameter stands, none at all is zero."""
    return Gradients(dict(model.named_parameters()))


def gradient_in(parameter: Any) -> Any:
    """The gradient that lies in a parameter, or that Megatron keeps beside it; None where there is none."""
    return getattr(parameter, "main_grad", None) if parameter.grad is None else parameter.grad


def constant(value: Any) -> Fixed:
    """An input whose values are fixed: the claim is made for them only."""
    return Fixed(value)
