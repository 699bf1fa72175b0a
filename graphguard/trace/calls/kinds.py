"""What recording asks of every operator, looked up once for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graphguard.trace.calls.fused import steps_of
from graphguard.trace.source.assumptions import PYTORCH

_FUNCTIONAL = frozenset(("_c10d_functional", "_c10d_functional_autograd"))
_WAITS = frozenset(("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"))
_VALUE_TAGS = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_aten = torch.ops.aten
_INDEXED = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default)
_ITEM = _aten._local_scalar_dense.default  # noqa: SLF001


class Kind:
    """One operator.  Kinds are compared by identity, which is quicker than comparing operators: there is one for each, for ever.

    ``unfused``: what computes the same by simpler operators, where the operator itself is not recorded; ``is_composite``: those that PyTorch makes it of.  ``calls_collective``: a functional collective,
    which names its group by a string.  ``may_communicate``: it is of a namespace of collectives.  ``is_foreign``: a program or a library registered it.  ``changes_views``: it makes its operand another view of the same memory.  ``takes_masks``: its indices may be masks.
    ``written``: position and name of the arguments that it writes.  ``text``: its name as a graph has it.
    """

    __slots__ = (
        "calls_collective", "changes_views", "is_c10d", "is_composite", "is_foreign", "is_functional_collective", "is_mutable", "is_random", "may_communicate", "name", "needs_values", "operator",
        "short_name", "takes_masks", "text", "unfused", "written",
    )  # fmt: skip

    def __init__(self, operator: Any) -> None:
        schema = operator._schema  # noqa: SLF001
        self.operator = operator
        self.name: str = schema.name
        self.text = str(operator)
        self.is_foreign: bool = operator.namespace not in PYTORCH
        # a library's ``clone`` need not be PyTorch's
        self.short_name = self.name if self.is_foreign else self.name.partition("::")[2]
        self.is_c10d: bool = operator.namespace == "c10d"
        self.is_functional_collective: bool = operator.namespace in _FUNCTIONAL
        self.may_communicate = self.is_c10d or self.is_functional_collective
        self.calls_collective = self.is_functional_collective and self.name not in _WAITS
        self.is_mutable: bool = schema.is_mutable
        self.written = tuple((at, one.name) for at, one in enumerate(schema.arguments) if is_written(one))
        self.is_random: bool = torch.Tag.nondeterministic_seeded in operator.tags
        self.needs_values: bool = operator is _ITEM or any(tag in operator.tags for tag in _VALUE_TAGS)
        self.changes_views: bool = torch.Tag.inplace_view in operator.tags
        self.takes_masks: bool = operator in _INDEXED
        steps = steps_of(operator)
        self.is_composite: bool = steps is None and _is_composite(operator)
        self.unfused: Callable[..., Any] | None = operator.decompose if self.is_composite else steps


def kind_of(operator: Any) -> Kind:
    """The kind of an operator (an ``OpOverload``)."""
    identity = _identity(operator)
    kind = _kinds.get(identity)
    if kind is None:
        kind = _kinds[identity] = Kind(operator)  # which keeps the operator, so that nothing else gets its identity
    return kind


def is_written(argument: Any) -> bool:
    """Whether an operator writes an argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


_kinds: dict[int, Kind] = {}
# As in provenance: ``id`` is an audit event.
_identity = object.__hash__


def _is_composite(operator: Any) -> bool:
    """Whether PyTorch only ever makes an operator out of others, as autograd has it done before anything is recorded; where autograd is off it is seen whole."""
    has_kernel, keys = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C.DispatchKey  # noqa: SLF001
    name = operator.name()
    return (
        operator.namespace == "aten"
        and has_kernel(name, keys.CompositeImplicitAutograd)
        and not has_kernel(name, keys.CPU)
        and operator is not torch.ops.aten.one_hot.default  # which has a duty that its parts do not have
    )
