"""What operators return, from memory: the same operator on operands of the same kind gives results of the same kind.

``FakeTensorMode`` works out shapes by running each operator's shape function.  Its own memory of the answers is turned off: to look one up costs more than
all the rest of recording, and to keep one half as much as to work it out.  This memo stands in front of it and takes only what is plain: strided tensors of
known sizes, results that are new memory, a view of an operand or an operand itself.  Everything else is asked of ``FakeTensorMode`` each time.

What is new to the memo is worked out by the operator's own kernel for the ``meta`` device, below every mode, which takes a fifth of the time that
``FakeTensorMode`` takes.  Operators of which ``FakeTensorMode`` knows more than the kernel says, and calls over several devices, are asked of it; so is a call
that the kernel refuses, for the words in which it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from graphguard.trace.calls.geometry import stride_of
from graphguard.trace.calls.kinds import Kind, kind_of
from graphguard.trace.calls.refusals import ask_kernel, refuse_types
from graphguard.trace.calls.shapes import shape_function
from graphguard.trace.calls.shrunk import Order

_NAMESPACES = frozenset(("aten", "prims", "gg"))
_DATA_DEPENDENT = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.inplace_view)
_INDEXED = torch.ops.aten.index.Tensor
_NEW = torch.ops.aten.empty.memory_format
_CPU, _META = torch.device("cpu"), torch.device("meta")
_DETACH = torch.ops.aten.detach.default
# Operators that change what a tensor is, make one from a real one, ask about it, or look at the size of its memory.
_REFUSED = frozenset(
    "aten::" + name
    for name in (
        "set_", "resize_", "resize_as_", "lift", "lift_fresh", "lift_fresh_copy", "_local_scalar_dense", "item", "is_nonzero", "equal",
        "as_strided", "as_strided_", "as_strided_scatter", "as_strided_copy", "_to_sparse", "to_sparse", "_coalesced_", "detach_", "_nested_tensor_from_mask", "_resize_output_",
    )
)  # fmt: skip
# Operators of which a number's value, unlike its type, says nothing of the result's kind, nor whether there is one: programs are edited by changing numbers.
_ARITHMETIC = frozenset(
    getattr(getattr(torch.ops.aten, name + place), overload)
    for name in ("add", "sub", "mul", "div")
    for place in ("", "_")
    for overload in ("Tensor", "Scalar")
) | {torch.ops.aten.rsub.Scalar}
# Operators that ``FakeTensorMode`` has an own way for because of sizes that the data decides: of known ones it says what their kernel says.
_KNOWN_SIZES = frozenset(
    getattr(getattr(torch.ops.aten, name), overload)
    for name, overload in (
        ("view", "default"), ("_unsafe_view", "default"), ("slice", "Tensor"), ("select", "int"), ("copy_", "default"), ("embedding", "default"),
        ("slice_scatter", "default"), ("empty_like", "default"), ("zeros_like", "default"), ("ones_like", "default"),
        ("full_like", "default"), ("rand_like", "default"), ("randn_like", "default"), ("new_empty", "default"), ("new_zeros", "default"), ("new_ones", "default"),
        ("new_full", "default"), ("new_empty_strided", "default"),
    )
)  # fmt: skip
# Operators whose kernels for CPUs keep statistics of other types and sizes than others do: ``FakeTensorMode`` knows.
_OF_DEVICES = frozenset(("native_batch_norm", "_native_batch_norm_legit", "native_layer_norm"))
_MOST = 100_000
_PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format))
_UNPLAIN = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Generator)
_default_device = torch._C._get_default_device  # noqa: SLF001
_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001
_guard = torch._C._set_throw_on_mutable_data_ptr  # noqa: SLF001
_keys_of = torch._C._dispatch_key_set  # noqa: SLF001

Key: TypeAlias = tuple[Any, ...]


class _Unplain(Exception):  # noqa: N818 - no error: the call is not one to remember
    """A call has an operand that the memo does not take."""


@dataclass(frozen=True, slots=True)
class _Result:
    """How a result is made.  ``operand``: the tensor among the operands that it is, or (``is_view``) whose memory it shows; -1 for new memory."""

    operand: int
    is_view: bool = False
    offset: int = 0
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    device: torch.device | None = None

    def lying(self, strides: tuple[int, ...]) -> _Result:
        """New memory with these strides, or with dims in this order, if that is other than it was and leaves nothing out."""
        strides = (
            strides.steps(self.sizes) if isinstance(strides, Order) and len(strides) == len(self.sizes) else strides
        )
        dims = [dim for dim, size in enumerate(self.sizes) if size != 1]
        extent = 1 + sum((self.sizes[dim] - 1) * strides[dim] for dim in dims) if len(strides) == len(self.sizes) else 0
        if extent != math.prod(self.sizes) or all(strides[dim] == self.strides[dim] for dim in dims):
            return self
        return replace(self, strides=strides)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The results of a call; ``kind`` is ``tuple`` or ``list``, or None for a single one."""

    results: tuple[_Result | None, ...]
    kind: type | None

    def lying(self, strides: Sequence[tuple[int, ...]]) -> _Answer:
        """The answer whose new memory is laid out with these strides; itself where it is so already."""
        if len(strides) != len(self.results):
            return self
        results = tuple(
            one if one is None or one.operand >= 0 else one.lying(steps)
            for one, steps in zip(self.results, strides, strict=True)
        )
        return (
            self
            if all(new is old for new, old in zip(results, self.results, strict=True))
            else _Answer(results, self.kind)
        )


_NOT_PLAIN = _Answer((), None)


@dataclass(frozen=True, slots=True)
class Window:
    """Which elements of a ``storage`` a tensor showed; the tensor itself as another one shows it where words do not say that."""

    storage: torch.UntypedStorage
    elements: _Result | FakeTensor


class Kernels:
    """Runs operators for their shapes.  Answers are shared by all recordings of a process: they depend on nothing but the key."""

    answers: dict[Key, _Answer] = {}  # noqa: RUF012 - one for the process

    def __init__(self, mode: FakeTensorMode, note: Callable[[Any, Any, Any, Any], None] | None = None) -> None:
        """``note`` is told of calls whose answer is new here: operator, arguments, keywords, result."""
        self._mode = mode
        self._note = note
        self._attributes: dict[torch.device, dict[str, Any]] = {}

    def forget_devices(self) -> None:
        """Devices without a number have another one now."""
        self._attributes.clear()

    def run(self, kind: Kind, args: Any, kwargs: Any) -> Any:
        """What an operator returns, on fake tensors of this recording's mode.

        Another mode between the recording and the fake tensors, as ``make_fx`` puts one there, must see every call.
        """
        if _modes() > 1:
            return kind.operator(*args, **kwargs)
        return self._remembered(kind, args, kwargs)

    def _remembered(self, kind: Kind, args: Any, kwargs: Any) -> Any:
        func = kind.operator
        if not _is_plain_operator(kind):
            refuse_types(kind, args, kwargs)
            return (shape_function(func) or func)(*args, **kwargs)
        operands: list[FakeTensor] = []
        parts: list[Any] = [kind, torch.get_default_dtype(), _default_device(), torch.is_inference_mode_enabled()]
        try:
            told = [float if type(each) is float else each for each in args] if func in _ARITHMETIC else args
            self._describe(told, parts, operands)
            if kwargs:
                parts.extend(kwargs)
                self._describe(kwargs.values(), parts, operands)
            if len(operands) > 1:
                parts.extend(_shared(operands))
            key = tuple(parts)
            answer = self.answers.get(key)
        except (_Unplain, TypeError):  # TypeError: an argument that has no hash
            refuse_types(kind, args, kwargs)
            return func(*args, **kwargs)
        if answer is not None:
            return func(*args, **kwargs) if answer is _NOT_PLAIN else self._results(answer, operands)
        refuse_types(kind, args, kwargs)
        strides = ask_kernel(kind, args, kwargs)
        if len(self.answers) >= _MOST:
            self.answers.clear()
        out = self._by_its_kernel(kind, args, kwargs, operands)
        if out is not NotImplemented:
            answer = _answer_of(out, operands)
        else:
            out = func(*args, **kwargs)
            answer = self._checked(_answer_of(out, operands), out, operands)
        self.answers[key] = answer if strides is None else answer.lying(strides)
        if self.answers[key] is not answer:
            out = self._results(self.answers[key], operands)
        if self._note is not None:
            self._note(func, args, kwargs, out)
        return out

    def _by_its_kernel(self, kind: Kind, args: Any, kwargs: Any, operands: list[FakeTensor]) -> Any:
        """What the operator's kernel for the ``meta`` device returns, as fake tensors; ``NotImplemented`` where that is not for it to say."""
        if not _is_direct(kind):
            return NotImplemented
        devices = {operand._fake_device for operand in operands}  # noqa: SLF001 - ``device`` dispatches
        if (asked := kwargs.get("device")) is not None:
            devices.add(asked)
            kwargs = {**kwargs, "device": _META}
        elif not operands:
            devices.add(_CPU)
            kwargs = {**kwargs, "device": _META}
        if len(devices) != 1 or kwargs.get("pin_memory"):
            return NotImplemented
        (device,) = devices
        if device.type != "cpu" and device.index is None:
            return NotImplemented  # ``FakeTensorMode`` numbers it
        with in_kernel_invocation_manager(self._mode):
            try:
                out = kind.operator(*args, **kwargs)
            except Exception:  # noqa: BLE001 - whatever it is, ``FakeTensorMode`` has the words for it
                return NotImplemented
            results = out if isinstance(out, (list, tuple)) else (out,)
            if not all(result is None or _is_whole(result, operands) for result in results):
                return NotImplemented
            made = [one if one is None or type(one) is FakeTensor else self._fake(one, device) for one in results]
        return made[0] if results is not out else made if isinstance(out, list) else tuple(made)

    def new(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Any:
        """New memory; inside the fake mode."""
        return self._remembered(kind_of(_NEW), (list(shape),), {"dtype": dtype, "device": device, "pin_memory": False})

    def laid_out(
        self, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Any:
        """New memory with these strides."""
        return self._made(_Result(-1, False, 0, sizes, strides, dtype, device), [])

    def shown_by(self, tensor: FakeTensor) -> Any:
        """Another tensor that shows the same memory; inside the fake mode."""
        with torch._C._AutoDispatchBelowADInplaceOrView():  # noqa: SLF001 - where a recorder stands when it asks
            return self._remembered(kind_of(_DETACH), (tensor,), {})

    def window(self, tensor: FakeTensor) -> Window:
        """What a tensor shows now, which may change: it costs a tenth of another tensor."""
        storage = tensor.untyped_storage()
        if tensor.fake_mode is not self._mode or not _is_plain_tensor(tensor):
            return Window(storage, self.shown_by(tensor))
        shape, device = tensor.shape, tensor._fake_device  # noqa: SLF001 - ``device`` dispatches
        return Window(
            storage, _Result(0, True, tensor.storage_offset(), tuple(shape), stride_of(tensor), tensor.dtype, device)
        )

    def shown(self, window: Window) -> FakeTensor:
        """A tensor that shows what a window has kept; inside the fake mode."""
        if isinstance(window.elements, FakeTensor):
            return window.elements
        return self._view(window.elements, window.storage)

    def _describe(self, values: Any, parts: list[Any], operands: list[FakeTensor]) -> None:
        """Append what a key says of these arguments."""
        for value in values:
            kind = type(value)
            if kind in _PLAIN:
                parts += (kind, value)
            elif isinstance(value, FakeTensor):
                if value.fake_mode is not self._mode or not _is_plain_tensor(value):
                    raise _Unplain
                operands.append(value)
                parts += (
                    value.dtype,
                    value.shape,
                    stride_of(value),
                    value.storage_offset(),
                    value._fake_device,  # noqa: SLF001 - ``device`` dispatches
                    value.requires_grad,
                )
            elif isinstance(value, (list, tuple)):
                parts += (kind, len(value))
                self._describe(value, parts, operands)
            elif isinstance(value, _UNPLAIN):
                raise _Unplain
            else:
                parts += (kind, value)

    # -- results -------------------------------------------------------------------------------------------------------
    def _results(self, answer: _Answer, operands: list[FakeTensor]) -> Any:
        made = [None if result is None else self._made(result, operands) for result in answer.results]
        if answer.kind is None:
            return made[0]
        return made if answer.kind is list else tuple(made)

    def _made(self, result: _Result, operands: list[FakeTensor]) -> FakeTensor:
        if result.operand >= 0 and not result.is_view:
            return operands[result.operand]
        if result.is_view:
            return self._view(result, operands[result.operand].untyped_storage())
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 - below every mode, as FakeTensorMode itself makes its tensors
            bare = torch.empty_strided(result.sizes, result.strides, dtype=result.dtype, device="meta")
        return self._fake(bare, result.device)

    def _view(self, result: _Result, memory: torch.UntypedStorage) -> FakeTensor:
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 - as above
            bare = torch.empty(0, dtype=result.dtype, device="meta")
            bare.set_(memory, result.offset, result.sizes, result.strides)
        return self._fake(bare, result.device)

    def _fake(self, bare: torch.Tensor, device: Any) -> FakeTensor:
        """``FakeTensor(mode, bare, device)``, with the attributes, none of which depends on the tensor, taken from one that was made so."""
        attributes = self._attributes.get(device)
        if attributes is None:
            made = FakeTensor(self._mode, bare, device)
            self._attributes[device] = dict(vars(made))
            return made
        fake: FakeTensor = torch.Tensor._make_subclass(  # noqa: SLF001
            FakeTensor, bare, False, dispatch_device=True, device_for_backend_keys=device
        )
        _guard(fake)
        vars(fake).update(attributes)
        return fake

    def _checked(self, answer: _Answer, out: Any, operands: list[FakeTensor]) -> _Answer:
        """The answer, if what is made by it is in every respect what the operator made."""
        if answer is _NOT_PLAIN:
            return answer
        made = self._results(answer, operands)
        pairs = zip((made,), (out,), strict=True) if answer.kind is None else zip(made, out, strict=True)
        return answer if all(_alike(mine, theirs) for mine, theirs in pairs) else _NOT_PLAIN


def _is_plain_operator(kind: Kind) -> bool:
    known = _plain_operators.get(kind)
    if known is None:
        func = kind.operator
        known = (
            func.namespace in _NAMESPACES
            and func._schema.name not in _REFUSED  # noqa: SLF001
            and (func is _INDEXED or not any(tag in func.tags for tag in _DATA_DEPENDENT))
            and not any(_is_resized(argument) for argument in func._schema.arguments)  # noqa: SLF001
            and shape_function(func) is None
        )
        _plain_operators[kind] = known
    return known


def _is_direct(kind: Kind) -> bool:
    """Whether ``FakeTensorMode`` says of an operator what its kernel for the ``meta`` device says."""
    known = _direct_operators.get(kind)
    if known is None:
        func = kind.operator
        known = kind.short_name not in _OF_DEVICES and (
            func in _KNOWN_SIZES or func not in fake_impls.op_implementations_dict
        )
        _direct_operators[kind] = known
    return known


def _is_whole(result: Any, operands: list[FakeTensor]) -> bool:
    """Whether a kernel's result is an operand, shows the memory of one, or is all of its own."""
    if type(result) is FakeTensor:
        return any(result is operand for operand in operands)
    if type(result) is not torch.Tensor or result.layout is not torch.strided:
        return False
    memory = result.untyped_storage()
    if any(memory._cdata == _memory(operand) for operand in operands):  # noqa: SLF001
        return True
    extent = 1 + sum((size - 1) * step for size, step in zip(result.shape, result.stride(), strict=True))
    needed = result.itemsize * extent if result.numel() else 0
    return result.storage_offset() == 0 and int(memory.nbytes()) == needed


_direct_operators: dict[Kind, bool] = {}
_plain_operators: dict[Kind, bool] = {}


def _is_resized(argument: Any) -> bool:
    """Whether an operator may give this operand another size, as it does with ``out=``."""
    return argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write


def _is_plain_tensor(tensor: FakeTensor) -> bool:
    return (
        not tensor._has_symbolic_sizes_strides  # noqa: SLF001
        and tensor.layout is torch.strided
        and tensor.constant is None
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_quantized
        and not tensor.is_inference()
        and not tensor._is_zerotensor()  # noqa: SLF001
    )


def _answer_of(out: Any, operands: list[FakeTensor]) -> _Answer:
    """How these results are made from the operands."""
    kind = type(out) if isinstance(out, list | tuple) else None
    if kind not in (None, list, tuple):
        return _NOT_PLAIN
    results = [_result_of(item, operands) for item in ((out,) if kind is None else out)]
    if any(result is NotImplemented for result in results):
        return _NOT_PLAIN
    return _Answer(tuple(results), kind)


def _result_of(value: Any, operands: list[FakeTensor]) -> Any:
    if value is None:
        return None
    for index, operand in enumerate(operands):
        if value is operand:
            return _Result(index)
    if type(value) is not FakeTensor or not _is_plain_tensor(value) or value.requires_grad:
        return NotImplemented
    memory = _memory(value)
    shown = next((i for i, operand in enumerate(operands) if _memory(operand) == memory), -1)
    if shown < 0 and value.storage_offset() != 0:
        return NotImplemented
    place = (value.storage_offset(), tuple(value.shape), tuple(stride_of(value)))
    return _Result(shown, shown >= 0, *place, value.dtype, value._fake_device)  # noqa: SLF001


def _shared(operands: list[FakeTensor]) -> list[int]:
    """Which operands are one tensor, and which show the same memory: results are a view of the first that does."""
    tensors: dict[int, int] = {}
    memories: dict[int, int] = {}
    found = [tensors.setdefault(id(operand), place) for place, operand in enumerate(operands)]
    found += [memories.setdefault(_memory(operand), place) for place, operand in enumerate(operands)]
    return found


def _memory(tensor: FakeTensor) -> int:
    return tensor.untyped_storage()._cdata  # noqa: SLF001


def _alike(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    facts = [
        (t.dtype, t.shape, t.stride(), t.storage_offset(), t.device, t.untyped_storage().nbytes(), str(_keys_of(t)))
        for t in (mine, theirs)
    ]
    return facts[0] == facts[1]
