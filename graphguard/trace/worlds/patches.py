"""What PyTorch must do differently while a program is recorded, and only then.

Each replacement acts inside a :class:`~graphguard.trace.worlds.world.World` and is PyTorch's own function everywhere else.  They are installed once, before user code is imported,
because programs bind names early (``from torch.distributed import new_group``).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.trace.calls import state
from graphguard.trace.depends import chance, orders
from graphguard.trace.gpu import cuda
from graphguard.trace.pure import harmless
from graphguard.trace.replace import (
    addresses,
    arguments,
    arrays,
    attention,
    batch_norms,
    copies,
    freed,
    gradients,
    initialisers,
    made_of_numbers,
    moves,
    number_calls,
    one_cpu,
    pinned,
    premultiplied,
    shadowed,
    subclasses,
    symmetric,
)
from graphguard.trace.replace.extensions import refuse_builds
from graphguard.trace.replace.overrides import overridable
from graphguard.trace.worlds import machines, new_groups, objects
from graphguard.trace.worlds.works import as_batch, collecting, done, finished, waiting

_NOT_WRAPPED = frozenset(("__enter__", "__exit__", "__eq__", "__hash__", "__repr__"))
_installed: list[bool] = []
_libraries: list[torch.library.Library] = []


def install() -> None:
    """Put all replacements in place; a second call does nothing."""
    if _installed:
        return
    _installed.append(True)
    _process_groups()
    new_groups.watch()
    machines.watch()
    replace(torch.futures, "collect_all", collecting)
    replace(torch.futures, "wait_all", waiting)
    _splits()
    objects.install()
    _coalescing()
    _data_parallel()
    _data_dependent()
    _scaling()
    _broadcasts()
    premultiplied.watch()
    addresses.install()
    copies.install()
    freed.install()
    shadowed.install()
    initialisers.install()
    arrays.install()
    made_of_numbers.install()
    pinned.install()
    number_calls.install()
    orders.install()
    chance.install()
    batch_norms.install()
    _device_meshes()
    _sharding_propagation()
    _parameters()
    moves.install()
    one_cpu.install()
    subclasses.install()
    symmetric.install()
    _compilers()
    _functions()
    _grouped_products()
    gradients.install()
    refuse_builds()
    cuda.watch()
    harmless.note()


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace ``owner.name`` by what ``make`` builds around it."""
    original = getattr(owner, name)
    if callable(original):
        setattr(owner, name, functools.wraps(original)(make(original)))


def _splits() -> None:
    """Groups cut out of another are groups of their own, made by all of its members together: what NCCL shares among them is no part of the program."""

    as_named: dict[str, Any] = {"use_local_synchronization": True}
    if "sort_ranks" in inspect.signature(dist.new_group).parameters:
        as_named["sort_ranks"] = False

    def split(original: Any) -> Any:
        def split_group(parent_pg: Any = None, split_ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            world = state.current_world()
            if world is None or world.chose_gloo or not split_ranks:  # gloo cannot, and says so
                return original(parent_pg, split_ranks, *args, **kwargs)
            parent = arguments.members(parent_pg or dist.group.WORLD)
            recorder = state.current_recorder()
            if recorder is not None:
                recorder.met("split_group", parent)
            parts = [[parent.ranks[place] for place in sorted(part)] for part in split_ranks]
            own = next((part for part in parts if world.rank in part), None)
            return own and dist.new_group(own, group_desc=kwargs.get("group_desc"), **as_named)

        return split_group

    wrapped = functools.wraps(c10d.split_group)(split(c10d.split_group))
    c10d.split_group = dist.split_group = wrapped


def _process_groups() -> None:
    def init(original: Any) -> Any:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            world = state.current_world()
            if world is None:
                return original(*args, **kwargs)
            return world.init_process_group(*args, **kwargs)

        return init_process_group

    def new(original: Any) -> Any:
        parameters = inspect.signature(original)
        kept = ("ranks", "use_local_synchronization", "group_desc", "sort_ranks")

        def new_group(*args: Any, **kwargs: Any) -> Any:
            if state.current_world() is None:
                return original(*args, **kwargs)
            given = parameters.bind(*args, **kwargs).arguments
            return original(backend="fake", **{name: given[name] for name in kept if name in given})

        return new_group

    def backend(original: Any) -> Any:
        def get_backend(group: Any = None) -> Any:
            world = state.current_world()
            return original(group) if world is None else world.backend

        return get_backend

    def batch(original: Any) -> Any:
        def batch_isend_irecv(p2p_op_list: Any) -> Any:
            works = original(p2p_op_list)
            world = state.current_world()
            return works if world is None or world.chose_gloo else as_batch(works)

        return batch_isend_irecv

    made = (
        ("init_process_group", init), ("new_group", new), ("get_backend", backend), ("batch_isend_irecv", batch)
    )  # fmt: skip
    for name, make in made:
        wrapped = functools.wraps(getattr(c10d, name))(make(getattr(c10d, name)))
        for module in (c10d, dist, device_mesh):  # which has names of its own for some
            if hasattr(module, name):
                setattr(module, name, wrapped)


def _coalescing() -> None:
    """What is put off until a block of collectives ends has one handle, which stands for all of them."""
    began: dict[Any, int] = {}
    group_type = dist.ProcessGroup

    def start(original: Any) -> Any:
        def start_coalescing(self: Any, *args: Any) -> Any:
            recorder = state.current_recorder()
            began[self] = 0 if recorder is None else len(recorder.events)
            return original(self, *args)

        return start_coalescing

    def end(original: Any) -> Any:
        def end_coalescing(self: Any, *args: Any) -> Any:
            recorder, first = state.current_recorder(), began.pop(self, 0)
            if recorder is None:
                return original(self, *args)
            within = [event for event in recorder.events[first:] if getattr(event.op, "namespace", "") == "c10d"]
            return finished([], lambda: recorder.synchronized(*within) if within else None)

        return end_coalescing

    replace(group_type, "_start_coalescing", start)
    replace(group_type, "_end_coalescing", end)


def _data_parallel() -> None:
    """DDP compares the ranks' shapes on real memory, which a recording does not have; the joining of the ranks compares them."""
    original = dist._verify_params_across_processes  # noqa: SLF001

    def verify(*args: Any, **kwargs: Any) -> None:
        recorder = state.current_recorder()
        if recorder is None:
            original(*args, **kwargs)
        elif recorder.repeats is not None:
            recorder.repeats.shows("the reducer of DDP watches gradients")  # in C++

    dist._verify_params_across_processes = verify  # noqa: SLF001
    again = dist.Reducer._rebuild_buckets  # noqa: SLF001

    def rebuild(self: Any) -> bool:
        # after the first backward, in C++ and on real memory; which gradients travel together does not change them
        return bool(again(self)) if state.current_recorder() is None else False

    dist.Reducer._rebuild_buckets = rebuild  # noqa: SLF001


def _data_dependent() -> None:
    """Sizes that the data decides cannot cross into c10d's C++."""
    original_exchange = c10d.all_to_all_single

    def all_to_all_single(
        output: Any,
        input: Any,  # noqa: A002  # PyTorch's name for it
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        sizes = (*(output_split_sizes or ()), *(input_split_sizes or ()))
        if state.current_recorder() is None or not any(isinstance(size, torch.SymInt) for size in sizes):
            return original_exchange(output, input, output_split_sizes, input_split_sizes, group, async_op)
        name = (group or dist.group.WORLD).group_name
        operator = torch.ops._c10d_functional.all_to_all_single  # noqa: SLF001
        received = operator(input, output_split_sizes, input_split_sizes, name)
        output.copy_(torch.ops._c10d_functional.wait_tensor(received))  # noqa: SLF001
        return done() if async_op else None

    wrapped = functools.wraps(original_exchange)(all_to_all_single)
    c10d.all_to_all_single = dist.all_to_all_single = wrapped


def _broadcasts() -> None:
    """A functional broadcast copies its operand and broadcasts into the copy.

    PyTorch's kernel does so in C++, where autograd sees the copy (the gradient goes through unchanged), and a recording would not.
    """
    library = torch.library.Library("_c10d_functional", "IMPL")
    _libraries.append(library)

    def broadcast(operand: torch.Tensor, source: int, group: str) -> torch.Tensor:
        return torch.ops._c10d_functional.broadcast_.default(operand.clone(), source, group)  # noqa: SLF001

    library.impl("broadcast", broadcast, "Autograd")


def _scaling() -> None:
    """A loss scaler looks whether gradients overflowed and then skips the step; a proof is about steps that are taken."""
    original = torch.amp.GradScaler._maybe_opt_step  # noqa: SLF001

    def step(self: Any, optimizer: Any, found: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = state.current_recorder()
        if recorder is None:
            return original(self, optimizer, found, *args, **kwargs)
        recorder.assumed.add("gradients are finite: the loss scaler never skips a step")
        return optimizer.step(*args, **kwargs)

    torch.amp.GradScaler._maybe_opt_step = functools.wraps(original)(step)  # noqa: SLF001


def _device_meshes() -> None:
    """Meshes are bookkeeping on the host: never recorded, never fake."""

    def outside(original: Any) -> Any:
        def unseen(*args: Any, **kwargs: Any) -> Any:
            recorder = state.current_recorder()
            if recorder is None:
                return original(*args, **kwargs)

            def known(arg: Any) -> Any:
                """What a program makes of a mesh's own tensor, or of literals, is known."""
                return recorder.elements(arg) if isinstance(arg, FakeTensor) else arg

            args, kwargs = tuple(map(known, args)), {name: known(arg) for name, arg in kwargs.items()}
            with _disable_current_modes():
                return original(*args, **kwargs)

        return functools.wraps(original)(unseen)

    for name, member in list(vars(device_mesh.DeviceMesh).items()):
        if name in _NOT_WRAPPED:
            continue
        if isinstance(member, staticmethod):
            setattr(device_mesh.DeviceMesh, name, staticmethod(outside(member.__func__)))
        elif isinstance(member, property):
            setattr(device_mesh.DeviceMesh, name, property(outside(member.fget)))
        elif type(member).__name__ == "function":
            setattr(device_mesh.DeviceMesh, name, outside(member))
    device_mesh.init_device_mesh = dist.init_device_mesh = outside(device_mesh.init_device_mesh)


def _sharding_propagation() -> None:
    """DTensor runs operators on shapes of its own to learn placements: not part of the program."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    def unseen(original: Any) -> Any:
        def propagate(*args: Any, **kwargs: Any) -> Any:
            recorder = state.current_recorder()
            with recorder.pause() if recorder is not None else nullcontext():
                return original(*args, **kwargs)

        return propagate

    replace(ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen)


def _parameters() -> None:
    original_new = nn.Parameter.__new__
    grafted: dict[type, type] = {}

    def new(cls: Any, data: Any = None, requires_grad: bool = True, **others: Any) -> Any:
        made = graft(cls, data, requires_grad, **others)
        recorder = state.current_recorder()
        if recorder is not None:
            recorder.born(made)
        return made

    def graft(cls: Any, data: Any, requires_grad: bool, **_: Any) -> Any:
        # a subclass of Parameter loses its class when its data is fake: graft it on
        if cls is nn.Parameter or not isinstance(data, FakeTensor):
            return original_new(cls, data, requires_grad)
        made = original_new(nn.Parameter, data, requires_grad)
        if cls not in grafted:
            grafted[cls] = type(cls)(cls.__name__, (FakeTensor, cls), {})
        made.__class__ = grafted[cls]
        return made

    nn.Parameter.__new__ = staticmethod(new)


def _compilers() -> None:
    """Compiled code is recorded as the eager program it must equal."""

    def compiler(original: Any) -> Any:
        def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            if state.current_world() is None:
                compiled = original(model, *args, **kwargs)
                return _eager_in_worlds(model, compiled) if isinstance(model, FunctionType) else compiled
            return model if model is not None else (lambda function: function)

        return compile_

    def scripter(original: Any) -> Any:
        def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if state.current_world() is not None and not _called_by_torch():
                return obj
            if len(args) < 2:  # names are looked up in the caller's frame, which is one further away
                kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
            return original(obj, *args, **kwargs)

        return script

    replace(torch, "compile", compiler)
    replace(torch.jit, "script", scripter)
    original = nn.Module.compile

    def compile_module(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if state.current_world() is None:
            original(self, *args, **kwargs)

    nn.Module.compile = functools.wraps(original)(compile_module)


def _eager_in_worlds(function: Any, compiled: Any) -> Any:
    """A function that was compiled while its module was imported, before anything was recorded."""

    @functools.wraps(compiled)
    def run(*args: Any, **kwargs: Any) -> Any:
        return (compiled if state.current_world() is None else function)(*args, **kwargs)

    return run


def _called_by_torch() -> bool:
    """Whether PyTorch itself calls a replacement, as it scripts its formulas for forward-mode gradients when one is first asked for."""
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("torch.")  # noqa: SLF001 - who asks is what counts


def _grouped_products() -> None:
    """Products of groups in any float type: kernels take them, and PyTorch's shape function knows the GPU's one type only."""

    def make(original: Any) -> Any:
        def shape(a: Any, b: Any, scale_a: Any, scale_b: Any, *args: Any, **kwargs: Any) -> Any:
            if scale_a is not None or a.dtype != b.dtype or not a.dtype.is_floating_point:
                return original(a, b, scale_a, scale_b, *args, **kwargs)
            if any(type(size) is not int for size in (*a.shape, *b.shape)):
                return _rows_from_data(a, b, *args, **kwargs)
            narrow = (t.to(torch.bfloat16) for t in (a, b))
            return original(*narrow, None, None, *args, **kwargs).to(kwargs.get("out_dtype") or a.dtype)

        return shape

    replace(torch._meta_registrations, "_meta_grouped_mm_common", make)  # noqa: SLF001 - where shapes are told


def _rows_from_data(a: Any, b: Any, offs: Any = None, *_: Any, out_dtype: Any = None, **__: Any) -> Any:
    """What a product of groups is like where the data decides the rows: PyTorch's shape function asks about strides that are not known."""
    dims = a.dim() + b.dim()
    groups = () if dims == 5 else (offs.shape[0] if dims == 4 else a.shape[0],)
    if dims > 4:
        torch._check(  # noqa: SLF001 - as its shape function does
            a.shape[-1] == b.shape[-2], lambda: "contraction dimension of mat_a and mat_b must match"
        )
    return a.new_empty((*groups, a.shape[-2], b.shape[-1]), dtype=out_dtype or a.dtype)


def _functions() -> None:
    import torch.nn.attention.flex_attention as flex_attention

    original_sdpa = nn.functional.scaled_dot_product_attention
    original_dropout = nn.functional.dropout
    original_one_hot = nn.functional.one_hot
    original_apply = vars(torch.autograd.Function)["apply"]  # of a type of C's own since PyTorch 2.14

    def sdpa(*args: Any, **kwargs: Any) -> Any:
        if state.current_recorder() is None:
            return original_sdpa(*args, **kwargs)
        return attention.scaled_dot_product_attention(*args, **kwargs)

    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        # the CPU takes another path than the GPU; record the GPU's one operator everywhere
        if state.current_recorder() is None or not training or not 0 < p < 1:
            return original_dropout(input, p, training, inplace)
        result = torch.native_dropout(input, p, True)[0]
        return input.copy_(result) if inplace else result

    def one_hot(tensor: Any, num_classes: int = -1) -> Any:
        # recorded whole, for its parts would not say that a class outside the range is an error
        recorder = state.current_recorder()
        inside = torch._C._functorch.maybe_current_level() is not None  # noqa: SLF001
        if recorder is None or num_classes <= 0 or inside or attention.is_wrapper(tensor):
            return original_one_hot(tensor, num_classes)
        if recorder.constants.knowledge([tensor]) != "unknown":  # whose classes are looked at when it is worked out
            return original_one_hot(tensor, num_classes)
        with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
            return torch.ops.aten.one_hot.default(tensor, num_classes)

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = state.current_recorder()
        if recorder is not None:
            recorder.entering_function()
        return original_apply.__get__(None, cls)(*args, **kwargs)

    original_flex = flex_attention.flex_attention_hop

    def flex(*args: Any) -> Any:
        if state.current_recorder() is None:
            return original_flex(*args)
        return attention.flex_attention(original_flex, *args)

    flex_attention.flex_attention_hop = flex
    validate = flex_attention._validate_device  # noqa: SLF001

    def validate_device(*args: Any) -> None:
        if state.current_recorder() is None:  # a recording runs no kernel, so the CPU's lack of one does not matter
            validate(*args)

    flex_attention._validate_device = validate_device  # noqa: SLF001
    nn.functional.scaled_dot_product_attention = overridable(original_sdpa, sdpa)
    nn.functional.dropout = overridable(original_dropout, dropout)
    nn.functional.one_hot = overridable(original_one_hot, one_hot)
    torch.autograd.Function.apply = classmethod(functools.wraps(torch.autograd.Function.apply)(apply))
