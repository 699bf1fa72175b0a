"""What calls of a module must have in common, apart from what their code looks up: the kinds of their tensors, and PyTorch's own state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.trace.calls.constants import tensors_in
from graphguard.trace.calls.events import Ref
from graphguard.trace.calls.geometry import stride_of
from graphguard.trace.calls.tape import Tape
from graphguard.trace.pure.harmless import METHODS, identity
from graphguard.trace.pure.lookups import Doubt


@dataclass(frozen=True, slots=True)
class Shown:
    """A tensor that others are to be like."""

    ref: Ref
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def nobody_else() -> bool:
    """Whether no mode, transform or hook of the program's is between its calls and the recorder."""
    c = torch._C  # noqa: SLF001
    return (
        c._len_torch_dispatch_stack() == 2  # noqa: SLF001 - the fake tensors' and the recorder's
        and c._len_torch_function_stack() == 0  # noqa: SLF001
        and c._functorch.maybe_current_level() is None  # noqa: SLF001
        and c._autograd._top_saved_tensors_default_hooks(False) is None  # noqa: SLF001
        and torch.autograd.forward_ad._current_level < 0  # noqa: SLF001
        and c._get_tracing_state() is None  # noqa: SLF001
        and not c10d._world.pg_coalesce_state  # noqa: SLF001
    )


def kinds_of(recorder: Tape, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """What of tensors decides what operators do with them, which share memory, and what is known of their elements; raises ``Doubt`` for tensors of another kind."""
    places: dict[int, int] = {}
    found: list[Any] = []
    for tensor in tensors:
        if (
            type(tensor) is not FakeTensor
            or tensor.fake_mode is not recorder.fake_mode
            or tensor._has_symbolic_sizes_strides  # noqa: SLF001
            or not METHODS.keys().isdisjoint(vars(tensor))  # an attribute that hides a method
        ):
            raise Doubt("a tensor of another kind")
        storage = tensor.untyped_storage()
        place = places.setdefault(storage._cdata, len(places))  # noqa: SLF001
        found.append((place, *kind_of_tensor(tensor), storage.nbytes(), _elements(recorder, tensor)))
    return tuple(found)


def kind_of_tensor(tensor: Any) -> tuple[Any, ...]:
    """What of one tensor decides what operators do with it."""
    device = tensor._fake_device  # noqa: SLF001
    if device.type != "cpu" or tensor.layout is not torch.strided:
        raise Doubt("a tensor that is elsewhere")  # on a GPU, the engine runs in threads of its own
    keys = torch._C._dispatch_keys(tensor).raw_repr()  # noqa: SLF001
    geometry = (tensor.dtype, tuple(tensor.shape), stride_of(tensor), tensor.storage_offset())
    return (*geometry, device, tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), keys)


def lies_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors of one shape have elements of one type, in one order."""
    return one.dtype is other.dtype and stride_of(one) == stride_of(other)


def _elements(recorder: Tape, tensor: FakeTensor) -> bytes | None:
    """The elements, where they are known."""
    knowledge = recorder.constants.knowledge([tensor])
    if knowledge == "pending":
        raise Doubt("other ranks decide what a tensor holds")
    if knowledge == "unknown":
        return None
    real = recorder.elements(tensor)
    with _disable_current_modes():
        return real.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def arguments_of(given: Any) -> frozenset[int]:
    """The tensors, by identity, that a call is given."""
    return frozenset(map(identity, tensors_in(given)))


def leaves_of(
    tensors: Sequence[torch.Tensor], arguments: frozenset[int], *, grad: bool | None = None
) -> tuple[int, ...]:
    """The places of tensors that have gradients: one of the arguments at most, and parameters that nobody watches and that have no gradient yet."""
    if not (torch.is_grad_enabled() if grad is None else grad):
        return ()
    places = tuple(place for place, tensor in enumerate(tensors) if tensor.requires_grad)
    if sum(identity(tensors[place]) in arguments for place in places) > 1:
        raise Doubt("two arguments have gradients")
    for tensor in (tensors[place] for place in places):
        if tensor.is_leaf and (tensor.grad is not None or tensor._backward_hooks or tensor._post_accumulate_grad_hooks):  # noqa: SLF001
            raise Doubt("a gradient is watched, or there already")
        if not tensor.is_leaf and identity(tensor) not in arguments:
            raise Doubt("a parameter that is made of others")
    return places


def shown(recorder: Tape, tensor: Any) -> Shown:
    """A tensor that shows all of its memory; raises ``Doubt`` for another one."""
    if type(tensor) is not FakeTensor or tensor._has_symbolic_sizes_strides or tensor.storage_offset():  # noqa: SLF001
        raise Doubt("a tensor that shows a part of its memory")
    kind_of_tensor(tensor)
    if recorder.constants.knowledge([tensor]) != "unknown" or tensor.is_conj() or tensor.is_neg():
        raise Doubt("a tensor of which more is known")
    sizes, strides = tuple(tensor.shape), stride_of(tensor)
    last = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True)) + 1
    size = tensor.element_size()
    if not tensor.numel() or tensor.untyped_storage().nbytes() != last * size or last != tensor.numel():
        raise Doubt("a tensor that shows a part of its memory")
    return Shown(recorder.ref(tensor), sizes, strides, tensor.dtype, tensor._fake_device)  # noqa: SLF001


def state_of() -> tuple[Any, ...]:
    """PyTorch's own state, as far as calls of operators depend on it; gradients are for the caller to ask about."""
    c = torch._C  # noqa: SLF001
    return (
        torch.get_default_dtype(),
        c._get_default_device(),  # noqa: SLF001
        c._len_torch_dispatch_stack(),  # noqa: SLF001
        c._len_torch_function_stack(),  # noqa: SLF001
        c._autograd._saved_tensors_hooks_is_enabled(),  # noqa: SLF001
        torch.is_anomaly_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        c._is_torch_function_enabled(),  # noqa: SLF001
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.enabled,
        c10d._world.default_pg,  # noqa: SLF001
    )
