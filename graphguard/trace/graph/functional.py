"""From calls on memory to a graph of values.

Every event is read in order; :class:`~graphguard.trace.graph.memory.Memory` says what each tensor shows at that point.  What only moves or copies memory
leaves no node, an operator that writes becomes its functional twin, a view stays a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.ir.graph import DType, Graph, Sym, Var
from graphguard.ir.joining import WAIT
from graphguard.ir.spans import Span
from graphguard.ops import aten
from graphguard.trace.calls.collectives import calls_of
from graphguard.trace.calls.constants import constant_of
from graphguard.trace.calls.events import Event, Ref
from graphguard.trace.calls.kinds import Kind, kind_of
from graphguard.trace.calls.segments import stretches
from graphguard.trace.graph import foreach
from graphguard.trace.graph.builder import DOUBLE, Builder, elements
from graphguard.trace.graph.communication import Communication
from graphguard.trace.graph.layouts import Backend
from graphguard.trace.graph.meetings import POSTED, results
from graphguard.trace.graph.memory import Memory
from graphguard.trace.graph.overlaps import check_overlaps, once
from graphguard.trace.graph.overwritten import overwritten
from graphguard.trace.graph.races import Races
from graphguard.trace.graph.read_numbers import SCALING, TAKING_TENSORS, is_whole, read_number, tensor_of
from graphguard.trace.graph.renaming import Renaming
from graphguard.trace.graph.twins import result_dtypes, twin_of
from graphguard.trace.graph.views import dtype_of, recipes, type_of, whole
from graphguard.trace.pure.harmless import identity
from graphguard.trace.source.errors import TracingError, UnfitMemoryError
from graphguard.trace.source.provenance import Stacks

_WHERE_IT_LIVES = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"))
_SAME = frozenset(
    (
        "detach", "detach_", "alias", "lift", "lift_fresh", "lift_fresh_copy", "clone", "contiguous", "wait_tensor",
        "_wrap_tensor_autograd", "positive", "_reshape_copy", "_unsafe_view_copy", "resolve_conj", "resolve_neg",
    )
)  # fmt: skip
_SILENT = frozenset(
    (
        "set_", "resize_", "record_stream", "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
        "sym_constrain_range_for_size", "_local_scalar_dense", "check_for_nan", "is_same_size", "_has_compatible_shallow_copy_type",
        "resize_storage_bytes_", "_version", "requires_grad_", "equal", "is_nonzero", "item", "_print",
    )
)  # fmt: skip
_EMPTY = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"))
_FILLED = {
    "zeros": 0,
    "zeros_like": 0,
    "new_zeros": 0,
    "_efficientzerotensor": 0,
    "ones": 1,
    "ones_like": 1,
    "new_ones": 1,
}
_FACTORIES = frozenset(
    (
        "arange", "linspace", "logspace", "eye", "scalar_tensor", "rand", "randn", "randint", "randperm", "tril_indices",
        "triu_indices", "rand_like", "randn_like", "randint_like",
    )
)  # fmt: skip


def functionalise(events: Sequence[Event], stacks: Stacks, rank: int, races: Races, backend: Backend) -> Graph:
    """The graph of a recording; raises ``TracingError`` for memory that values cannot express, and for races."""
    translation, dead = _Translation(rank, backend), overwritten(events)

    def follow(event: Event) -> None:
        try:
            races.step(event)
            translation.waits(races.over())
            if event.op != "wait" and identity(event) not in dead:
                translation.step(event)
        except UnfitMemoryError as error:
            error.tell(_place(stacks, event))
            raise
        except TracingError as error:
            error.span = error.span or _place(stacks, event)
            raise
        except Exception as error:  # whatever cannot be put as values becomes a diagnostic at the user's line
            message = f"{event.op} cannot be traced: {type(error).__name__}: {error}"
            raise TracingError("unsupported-operator", message, _place(stacks, event)) from error

    renaming = Renaming(translation.builder, translation.memory, translation.is_plain)
    for part in stretches(events):
        if isinstance(part, Event):
            follow(part)
        elif races.has_pending or part.is_itself or not renaming.renamed(part):
            with renaming.learning(part):
                for each in part.events():
                    follow(each)
    translation.waits(races.under_way())
    return translation.builder.graph(*stacks.resolve())


def _place(stacks: Stacks, event: Event) -> Span | None:
    for index in (event.stack, event.forward):
        if index >= 0:
            return stacks.innermost(index).span
    return None


class _Translation:
    def __init__(self, rank: int, backend: Backend) -> None:
        self.builder = Builder()
        self.memory = Memory(self.builder)
        self.communication = Communication(self.builder, self.memory, rank, backend)
        self._literals: dict[str, Var] = {}
        self._draws: dict[Var, tuple[str, int]] = {}
        self._started: dict[int, tuple[tuple[Var, ...], int]] = {}
        self._posted: set[Var] = set()  # what functional collectives give

    def is_plain(self, var: Var) -> bool:
        """Whether nothing but its type is known of a value."""
        return (not self._draws or var not in self._draws) and self.builder.bits_of(var) is None

    def step(self, event: Event) -> None:
        """Translate one call."""
        self.builder.at = event
        if isinstance(event.op, str):
            self._declare(event)
            return
        kind = event.kind
        if kind is None:
            self._pure(event, f"higher_order.{event.op.name()}", self.read(event.args))
            return
        calls = calls_of(kind.name, event.args, event.outs) if kind.may_communicate else None
        if calls is not None:
            start = len(self.builder.nodes)
            for call in calls:
                self.communication.translate(call, kind.name)
            if calls and not event.waited:
                made = results(self.builder.nodes[start:])
                self._started[identity(event)] = made, len(self.builder.nodes)
            return
        self._operator(event, kind)

    def waits(self, done: Iterable[Event]) -> None:
        """The program waits for these collectives, others than those that it has called just now."""
        for event in done:
            made, end = self._started.pop(identity(event), ((), 0))
            if made and end < len(self.builder.nodes):
                self.builder.emit(WAIT, made, [])
            elif made and event.op.namespace != "c10d":  # PyTorch has its result wait only when it is read
                self.builder.emit(POSTED, made, [])
                self._posted.update(made)

    def read(self, value: Any) -> Any:
        """Arguments with values in place of references."""
        if isinstance(value, Ref):
            return self.memory.read(value)
        if isinstance(value, tuple):
            return tuple(self.read(item) for item in value)
        return value

    def _read_number(self, name: str, value: Var) -> None:
        """A number is what its tensor holds now; PyTorch does not see writes through ``.data``, and takes the number that is there then for the one before."""
        if self.builder.symbols.setdefault(name, value) != value:
            raise TracingError(
                "trace-error",
                "a number is read again from a tensor that was written to through '.data' since\nread it from another tensor, such as a clone",
            )

    def _with_numbers(self, op: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The call that takes complex numbers, and numbers that were read from tensors, as tensors, where there is one."""
        taking = TAKING_TENSORS.get(op)
        if taking is None or not any(isinstance(arg, Sym | complex) for arg in args):
            return op, args
        types = {self.builder.types[arg].dtype for arg in args if isinstance(arg, Var)}
        wide = torch.complex64 if types.isdisjoint(DOUBLE) else torch.complex128
        found = tuple(self._complex(arg, wide) if isinstance(arg, complex) else self._number(arg) for arg in args)
        fits = all(arg is None or isinstance(arg, Var) for arg in found)
        return (taking, found) if fits else (op, args)

    def _scaled(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The operands, one of them multiplied by the number read from tensors by which the call would multiply it, which is taken out of the call."""
        name, place = SCALING.get(op, ("", 0))
        number = self._number(kwargs.get(name))
        operand = args[place] if isinstance(number, Var) else None
        if not isinstance(operand, Var):
            return args
        del kwargs[name]
        type_, by = self.builder.types[operand], self.builder.types[number].dtype
        dtype = by if is_whole(type_.dtype) and not is_whole(by) else type_.dtype
        product = self.builder.one(aten.mul.Tensor, (operand, number), type_.shape, dtype)
        return (*args[:place], product, *args[place + 1 :])

    def _complex(self, number: complex, dtype: torch.dtype) -> Var:
        with _disable_current_modes():
            return self._literal(constant_of(torch.tensor(number, dtype=dtype, device="cpu")))

    def _number(self, value: Any) -> Any:
        """A number that was read from tensors as a tensor; anything else as it is."""
        found = tensor_of(self.builder, value) if isinstance(value, Sym) else None
        return value if found is None else found

    # -- kinds of events -----------------------------------------------------------------------------------------------
    def _declare(self, event: Event) -> None:
        if event.op == "group":
            call, among, group = event.args
            self.communication.meet(call, among, group)
            return
        if event.op == "assume":
            self.builder.emit("gg.assume", self.read(event.args), [((), "bool")])
            return
        (name,) = event.args
        if event.op == "number":
            var = read_number(self.builder, event.outs)
            if var is not None:
                self.builder.outputs[name] = var
            return
        ref: Ref = event.outs
        if event.op == "leaf":
            var = self.builder.new(ref.shape, ref.dtype)
            self.builder.inputs[var] = name
            self.memory.define(ref, var)
        elif event.op == "constant":
            if not self.memory.holds(ref):
                self.memory.define(ref, self._literal(name))
        elif event.op == "output":
            self.builder.outputs[name] = self.memory.read(ref)
        elif event.op == "label":
            self.builder.labels[self.memory.read(ref)] = name

    def _literal(self, constant: Any) -> Var:
        var = self._literals.get(constant.digest)
        if var is None:
            var = self._literals[constant.digest] = self.builder.new(constant.type.shape, constant.type.dtype)
            self.builder.constants[var] = constant
        return var

    def _operator(self, event: Event, kind: Kind) -> None:
        name = kind.short_name
        if name == "_local_scalar_dense" and isinstance(event.outs, Sym):
            self._read_number(event.outs.expr, self.memory.read(event.args[0]))
        if name in _SILENT or kind.changes_views:
            return
        check_overlaps(event, kind)
        if name == "wait_tensor" and event.waited:
            self._made_to_wait(event.args[0])
        special = _SPECIAL.get(name)
        if special is not None and (name != "split_with_sizes_copy" or "out" in event.kwargs):
            special(self, event)
        elif name in _SAME:
            self._same(event)
        elif name in _EMPTY:
            ref = event.outs
            var = self.builder.one(
                aten.empty.memory_format, (ref.shape,), ref.shape, dtype_of(ref.geometry), dtype=DType(ref.dtype)
            )
            self.memory.define(ref, var)
        elif name in _FILLED:
            self.memory.define(event.outs, self._filled(event.outs, _FILLED[name]))
        elif name in ("full", "full_like", "new_full"):
            self.memory.define(
                event.outs, self._filled(event.outs, event.args[1] if name != "new_full" else event.args[2])
            )
        elif name.startswith("_foreach_"):
            self._foreach(event, name)
        elif kind.is_mutable:
            self._mutating(event, kind)
        elif self._is_view(event):
            self._view(event, kind)
        else:
            self._plain(event, kind)

    def _plain(self, event: Event, kind: Kind) -> None:
        name, kwargs = kind.short_name, self._kwargs(event)
        if name in _FACTORIES:
            kwargs["dtype"] = DType(event.outs.dtype)
        if name == "scalar_tensor" and isinstance(number := self._number(event.args[0]), Var):
            self.memory.define(event.outs, self.builder.shaped(number, *type_of(event.outs)))
            return
        op = kind.text.replace(".generator", ".default").replace(".low_generator", ".low")
        op = op.removesuffix(".default") if op.startswith("gg.") else op
        op, args = self._with_numbers(op, self._scaled(op, self.read(event.args), kwargs))
        self._pure(event, op, args, kwargs)

    def _pure(self, event: Event, op: str, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        outs = [out for out in _flat(event.outs) if out is None or isinstance(out, Ref)]
        results = tuple(self._new(out) for out in outs)
        self._share_draw(op, args, results, event)
        self.builder.append(op, args, kwargs or {}, results)
        for out, var in zip(outs, results, strict=True):
            if isinstance(out, Ref):
                self.memory.define(out, var)

    def _share_draw(self, op: str, args: Any, results: tuple[Var, ...], event: Event) -> None:
        """The backward of attention drops what the forward dropped."""
        if op == "gg.sdpa" and event.draw is not None:
            self._draws[results[0]] = event.draw
        elif op == "gg.sdpa_backward":
            event.draw = self._draws.get(args[4])

    def _new(self, out: Any) -> Var:
        if isinstance(out, Ref):
            return self.builder.new(out.shape, dtype_of(out.geometry))
        return self.builder.new((), "none")  # a result that this call does not have

    def _kwargs(self, event: Event) -> dict[str, Any]:
        kept = {key: value for key, value in event.kwargs.items() if key not in _WHERE_IT_LIVES and value is not None}
        return {key: self.read(value) for key, value in kept.items()}

    # -- memory --------------------------------------------------------------------------------------------------------
    def _made_to_wait(self, ref: Any) -> None:
        """The program itself calls ``wait_tensor``."""
        var = self.memory.read(ref)
        if var in self._posted:
            self.builder.emit(WAIT, (var,), [])

    def _same(self, event: Event) -> None:
        for source, result in zip(_flat(event.args[:1]), _flat(event.outs), strict=False):
            if isinstance(result, Ref) and not (result.key == source.key and self.memory.holds(result)):
                if result.storage == source.storage and self.memory.holds(result):
                    continue
                self.memory.define(result, self.builder.shaped(self.memory.read(source), *type_of(result)))

    def _is_view(self, event: Event) -> bool:
        source = event.args[0] if event.args else None
        if not isinstance(source, Ref) or not self.memory.holds(source):
            return False
        outs = [out for out in _flat(event.outs) if isinstance(out, Ref)]
        return bool(outs) and all(out.storage == source.storage for out in outs)

    def _view(self, event: Event, kind: Kind) -> None:
        base: Ref = event.args[0]
        outs = [out for out in _flat(event.outs) if isinstance(out, Ref)]
        fresh = [not self.memory.reachable(out) for out in outs]
        for out, recipe in zip(outs, recipes(event, kind, base.geometry, [out.geometry for out in outs]), strict=True):
            whole = out.geometry == base.geometry  # what is no step from one tensor to another
            if recipe is not None and not whole and not self.memory.reachable(out):
                self.memory.learn(out, recipe)
        if len(outs) > 1 and all(fresh):
            values = self.builder.emit(
                kind.text, self.read(event.args), [(out.shape, dtype_of(out.geometry)) for out in outs]
            )
            for out, value in zip(outs, values, strict=True):
                self.memory.remember(out, value)
        elif len(outs) == 1:
            self.memory.read(outs[0])

    def _filled(self, ref: Ref, value: Any) -> Var:
        dtype = dtype_of(ref.geometry)
        if isinstance(number := self._number(value), Var):
            return self.builder.shaped(number, ref.shape, dtype)
        if isinstance(value, Sym):
            number = self.builder.one(aten.scalar_tensor.default, (value,), (), dtype, dtype=DType(dtype))
            return self.builder.shaped(number, ref.shape, dtype)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if dtype == "bool":
                value = bool(value)
            elif dtype.startswith(("float", "bfloat")):
                value = float(value)
            elif isinstance(value, float) and dtype.startswith(("int", "uint")):
                value = int(value)
        return self.builder.one(aten.full.default, (ref.shape, value), ref.shape, dtype, dtype=DType(dtype))

    def _mutating(self, event: Event, kind: Kind) -> None:
        targets = [ref for position, name in kind.written for ref in _flat(event.given(position, name))]
        twin = twin_of(event.op)
        if twin is None:
            self._mutating_opaque(event, kind, targets)
            return
        given = event.args[: twin.count]
        kwargs = {key: value for key, value in event.kwargs.items() if key in twin.names}
        dtypes = result_dtypes(twin.operator, given, kwargs, [ref.dtype for ref in targets])
        read = {
            key: self.read(value) for key, value in kwargs.items() if key not in _WHERE_IT_LIVES and value is not None
        }
        if twin.short_name in _FACTORIES:
            read["dtype"] = DType(targets[0].dtype)
        outs = [(ref.shape, dtype) for ref, dtype in zip(targets, dtypes, strict=True)]
        op, args = self._with_numbers(twin.text, self._scaled(twin.text, self.read(given), read))
        values = self.builder.emit(op, args, outs, **read)
        for ref, value in zip(targets, values, strict=True):
            self.memory.write(ref, self.builder.shaped(value, *type_of(ref)))

    def _mutating_opaque(self, event: Event, kind: Kind, targets: list[Ref]) -> None:
        """An operator without a functional twin: its results, then the new values of what it writes."""
        written = {ref.key for ref in targets}
        outs = [out for out in _flat(event.outs) if isinstance(out, Ref) and out.key not in written]
        types = [(ref.shape, dtype_of(ref.geometry)) for ref in (*outs, *targets)]
        values = self.builder.emit(kind.text, self.read(event.args), types, **self._kwargs(event))
        for ref, value in zip((*outs, *targets), values, strict=True):
            self.memory.define(ref, value) if not self.memory.holds(ref) else self.memory.write(ref, value)

    def _foreach(self, event: Event, name: str) -> None:
        targets = _flat(event.args[0] if name.endswith("_") else event.outs)
        for index, target in enumerate(targets):
            args = foreach.item(event.args, index)
            kwargs = foreach.item(tuple(event.kwargs.values()), index)
            value = self._foreach_one(event, name, args, dict(zip(event.kwargs, kwargs, strict=True)), target)
            self.memory.write(target, self.builder.shaped(value, *type_of(target)))

    def _foreach_one(self, event: Event, name: str, args: Any, kwargs: dict[str, Any], target: Ref) -> Var:
        stem = name.removeprefix("_foreach_").removesuffix("_")
        if stem == "zero":
            return self._filled(target, 0)
        if stem in ("copy", "clone"):
            return self.memory.read(args[1 if stem == "copy" else 0])
        op, args, kwargs = foreach.single(stem, event.op._overloadname, args, kwargs)  # noqa: SLF001
        read = {key: self.read(value) for key, value in kwargs.items()}
        dtype = target.dtype if stem == "norm" else result_dtypes(op, args, kwargs, [target.dtype])[0]
        name, args = self._with_numbers(str(op), self._scaled(str(op), self.read(args), read))
        return self.builder.one(name, args, target.shape, dtype, **read)

    # -- operators with a form of their own ----------------------------------------------------------------------------
    def copy(self, event: Event) -> None:
        """``x.copy_(y)``: x shows y, cast and broadcast."""
        target, source = event.args[0], event.args[1]
        self.memory.write(target, self.builder.shaped(self.memory.read(source), *type_of(target)))

    def functional_copy(self, event: Event) -> None:
        """``aten.copy``: the second operand with the first one's type."""
        self.memory.define(event.outs, self.builder.shaped(self.memory.read(event.args[1]), *type_of(event.outs)))

    def cast(self, event: Event) -> None:
        """A copy on another device, or of another type; of a number that ``vmap`` takes for a tensor, too."""
        if not isinstance(event.args[0], Ref):
            self.memory.define(event.outs, self._filled(event.outs, event.args[0]))
            return
        self.memory.define(event.outs, self.builder.shaped(self.memory.read(event.args[0]), *type_of(event.outs)))

    def fill(self, event: Event) -> None:
        """``x.fill_(value)`` and ``x.zero_()``: the old x does not matter."""
        target = once(event.args[0])
        value = event.args[1] if len(event.args) > 1 else 0
        filled = self.memory.read(value) if isinstance(value, Ref) else None
        self.memory.write(
            target, self.builder.shaped(filled, *type_of(target)) if filled else self._filled(target, value)
        )

    def gather_copy_in(self, event: Event) -> None:
        """FSDP lays its shards one after the other into its part of the buffer that is then gathered."""
        part, whole = event.outs
        buffer: Ref = event.args[1]
        if not self.memory.holds(buffer):
            self.memory.define(buffer, self._filled(buffer, 0))
        flat = tuple(self.builder.flattened(self.memory.read(ref)) for ref in event.args[0])
        value = flat[0] if len(flat) == 1 else self.builder.one(aten.cat.default, (flat, 0), *type_of(part))
        self.memory.write(part, self.builder.shaped(value, *type_of(part)))
        if whole.key != buffer.key:
            self.memory.write(whole, self.memory.read(buffer))

    def split_copy(self, event: Event) -> None:
        """FSDP's copy of a gathered buffer into one tensor per parameter."""
        dim = event.args[2] if len(event.args) > 2 else event.kwargs.get("dim", 0)
        source = self.builder.types[self.memory.read(event.args[0])]
        dim %= len(source.shape)
        types = [((*source.shape[:dim], n, *source.shape[dim + 1 :]), source.dtype) for n in event.args[1]]
        values = self.builder.emit(
            aten.split_with_sizes.default, (self.memory.read(event.args[0]), event.args[1], dim), types
        )
        for ref, value in zip(event.kwargs["out"], values, strict=True):
            self.memory.write(ref, self.builder.shaped(self.builder.reshaped(value, ref.shape), *type_of(ref)))

    def chunk_cat(self, event: Event) -> None:
        """Every tensor cut into equal chunks along dim 0, padded with zeros; row i of the result holds the i-th chunk of each."""
        tensors, dim, count = event.args[0], event.args[1], event.args[2]
        target = event.kwargs.get("out", event.outs)
        if dim != 0:
            raise TracingError("unsupported-operator", f"chunk_cat along dim {dim} is not traced")
        rows = []
        for ref in tensors:
            value = self._padded(self.memory.read(ref), count)
            kind = self.builder.types[value]
            rows.append(self.builder.reshaped(value, (count, elements(kind) // count)))
        if len(rows) == 1:
            joined = rows[0]
        else:
            shape = (count, sum(whole(self.builder.types[row].shape[1]) for row in rows))
            joined = self.builder.one(aten.cat.default, (tuple(rows), 1), shape, self.builder.types[rows[0]].dtype)
        self.memory.write(target, self.builder.shaped(self.builder.reshaped(joined, target.shape), *type_of(target)))

    def _padded(self, value: Var, count: int) -> Var:
        """``value`` with zeros appended along dim 0 up to a multiple of ``count``."""
        kind = self.builder.types[value]
        missing = -whole(kind.shape[0]) % count
        if not missing:
            return value
        shape = (whole(kind.shape[0]) + missing, *kind.shape[1:])
        pads = (0, 0) * (len(shape) - 1) + (0, missing)
        return self.builder.one(aten.constant_pad_nd.default, (value, pads, 0.0), shape, kind.dtype)

    def batch_norm(self, event: Event) -> None:
        """Batch normalisation writes its running statistics though its schema does not say so."""
        names = ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps")
        given = dict(zip(names, event.args, strict=False))
        mean, variance = given["running_mean"], given["running_var"]
        if not given["training"] or mean is None:
            self._plain(event, kind_of(event.op))
            return
        outs = [*_flat(event.outs), mean, variance]
        values = self.builder.emit(
            aten._native_batch_norm_legit_functional.default, self.read(event.args), [type_of(ref) for ref in outs]
        )
        for ref, value in zip(outs, values, strict=True):
            self.memory.write(ref, value)


_SPECIAL: dict[str, Callable[[_Translation, Event], None]] = {
    "copy_": _Translation.copy,
    "copy": _Translation.functional_copy,
    "_to_copy": _Translation.cast,
    "fill_": _Translation.fill,
    "zero_": _Translation.fill,
    "native_batch_norm": _Translation.batch_norm,
    "all_gather_copy_in": _Translation.gather_copy_in,
    "split_with_sizes_copy": _Translation.split_copy,
    "chunk_cat": _Translation.chunk_cat,
    "_chunk_cat": _Translation.chunk_cat,
}


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [item for part in value for item in _flat(part)]
    return [value]
