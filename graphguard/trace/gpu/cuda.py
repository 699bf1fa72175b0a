"""Programs that hardcode CUDA, on a machine without a GPU.

Under fake tensors no kernel runs, so all that is missing is PyTorch's own belief that there is a device.  On a CPU build, autograd on a fake CUDA tensor
ends the process, because no device guard for CUDA is registered; PyTorch ships one that does nothing (``NoOpDeviceGuardImpl``)
and a way to install it, which this module takes.  It rests on C++ layouts of Linux on x86-64 and checks them first; where the checks
fail, everything on ``cuda`` is recorded as if it were on ``cpu``, which differs only in what autocast casts and in code that asks ``is_cuda``.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import os
import platform
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from graphguard.trace.calls import state
from graphguard.trace.calls.rank_view import RankView
from graphguard.trace.gpu import attention_kernels, engine, own_device
from graphguard.trace.gpu.asking_files import asking_files
from graphguard.trace.gpu.cuda_objects import AnyDevice, CudaGraph, Event, Profiler, Stream, always
from graphguard.trace.replace.overrides import known_to_scripts, overridable
from graphguard.trace.source.errors import TracingError, raised
from graphguard.trace.source.sources import is_torch

DEVICES = 8
CAPABILITY = (9, 0)
_TOOLKIT = "12.8"  # what programs read in torch.version.cuda
_kept: list[Any] = []
_installed: list[str] = []
# What programs raise, or run into, on the way that they take without a device.
_AFTER_ASKING = (AssertionError, AttributeError, ImportError, RuntimeError, ValueError, ZeroDivisionError)
_BEYOND_REPAIR = (
    "Torch not compiled with CUDA",
    "support for cuda devices",
    "NVIDIA driver",
    "CUDA GPUs are available",
    "dummy base class",
    "CUDA",
    "_cuda_",
)


class NeedsCuda(BaseException):
    """The program wants CUDA in a world of CPUs; not an ``Exception``, so user code does not catch it."""

    def __init__(self) -> None:
        super().__init__()
        raised(self)


def wants_cuda(error: BaseException) -> bool:
    """Whether a program failed only because its world has no CUDA device."""
    world = state.current_world()
    if isinstance(error, NeedsCuda):
        return True
    if world is None or world.device != "cpu" or not isinstance(error, (*_AFTER_ASKING, TypeError, TracingError)):
        return False
    unsupported = isinstance(error, TracingError) and error.rule == "unsupported-operator"
    asked = world.asked_for_cuda and (unsupported or isinstance(error, _AFTER_ASKING))
    return asked or any(text in str(error) for text in _BEYOND_REPAIR)


def refuse_cuda(device: Any) -> None:
    """Raise :class:`NeedsCuda` for a CUDA device in a world of CPUs: autograd on such a tensor would end the process."""
    if device is not None and device.type == "cuda":
        world = state.current_world()
        if world is not None and world.device == "cpu" and not _installed:
            raise NeedsCuda


def watch() -> None:
    """In a world of CPUs, what needs CUDA says so instead of failing, or silently doing something else."""
    original_init, original_available = torch.cuda._lazy_init, torch.cuda.is_available  # noqa: SLF001
    original_summary = torch.cuda.memory_summary
    original_count = torch.cuda.device_count
    original_autocast = torch.autocast.__init__
    original_scaling = torch.cuda.amp.common.amp_definitely_not_available

    def lazy_init() -> None:
        world = state.current_world()
        if world is not None and world.device == "cpu":
            raise NeedsCuda
        original_init()

    def is_available() -> bool:
        world = state.current_world()
        _note_question(world)
        return original_available() if world is None else world.device == "cuda"

    def device_count() -> int:  # programs divide by it, or take a rank modulo it
        world = state.current_world()
        _note_question(world)
        if world is None:
            return original_count()
        return DEVICES if world.device == "cuda" else 0

    def autocast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        world = state.current_world()
        if _installed == ["rewrite"] and device_type == "cuda":
            device_type = "cpu"
        elif world is not None and world.device == "cpu" and device_type == "cuda" and kwargs.get("enabled", True):
            raise NeedsCuda  # PyTorch would only warn, and not cast
        original_autocast(self, device_type, *args, **kwargs)

    def scales_nothing() -> bool:
        world = state.current_world()
        if world is not None and world.device == "cpu":
            raise NeedsCuda  # PyTorch would only warn, and not scale
        return bool(original_scaling())

    torch.cuda.amp.common.amp_definitely_not_available = functools.wraps(original_scaling)(scales_nothing)
    torch.cuda._lazy_init = lazy_init  # noqa: SLF001
    torch.cuda.is_available = functools.wraps(original_available)(is_available)

    def memory_summary(*args: Any, **kwargs: Any) -> str:
        torch.cuda._lazy_init()  # noqa: SLF001 - without a device PyTorch's own looks up what is not there
        return str(original_summary(*args, **kwargs))

    torch.cuda.memory_summary = torch.cuda.memory.memory_summary = functools.wraps(original_summary)(memory_summary)
    torch.cuda.device_count = functools.wraps(original_count)(device_count)
    for name in ("is_available", "device_count", "current_accelerator"):
        setattr(torch.accelerator, name, _asking(getattr(torch.accelerator, name)))
    torch.autocast.__init__ = functools.wraps(original_autocast)(autocast)


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        _note_question(state.current_world())
        return original(*args, **kwargs)

    return ask


def _note_question(world: RankView | None) -> None:
    """A file asks whether there is a device; torch itself asks all the time, and only where the program does may a later failure follow from the answer."""
    file = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - who asks is what counts
    if is_torch(file):
        return
    if world is None:
        asking_files.add(file)
    else:
        world.asked_for_cuda = True


def install() -> str:
    """Make this process believe in CUDA, for good; how it was done: ``build``, ``guard`` or ``rewrite`` (cuda as cpu)."""
    if not _installed:
        _installed.append(_install())
    return _installed[0]


def _install() -> str:
    if torch.backends.cuda.is_built():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what is traced must not depend on, or take memory of, a real device
        _forget_contexts()
        how = "build"
    else:
        try:
            _install_guard()
            how = "guard"
        except (AssertionError, OSError, AttributeError, ValueError):
            how = "rewrite"
    _replace_device_functions()
    if how == "rewrite":
        mode = _AsCpu()
        _kept.append(mode)
        mode.__enter__()
    return how


# -- C++ ---------------------------------------------------------------------------------------------------------------
def _install_guard() -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise OSError("layouts are known for Linux on x86-64 only")
    engine.start_without_threads()
    registry = engine.device_guards()
    if not registry[1]:
        _register_dummy_guard(registry)
    _claim_cuda_hooks(ctypes.CDLL(engine.library("libtorch_cpu.so")))


def _register_dummy_guard(registry: Any) -> None:
    """PyTorch replaces a guard that counts no devices by its own that does nothing: register one that answers 0 to everything."""
    answer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: 0)
    table = (ctypes.c_void_p * 64)(*[ctypes.cast(answer, ctypes.c_void_p).value] * 64)
    dummy = (ctypes.c_void_p * 1)(ctypes.addressof(table))
    _kept.extend((answer, table, dummy))
    registry[1] = ctypes.addressof(dummy)
    torch._C._ensureCUDADeviceGuardSet()  # noqa: SLF001
    if registry[1] == ctypes.addressof(dummy):
        registry[1] = None
        raise AssertionError("PyTorch did not replace the guard")


def _forget_contexts() -> None:
    """Where PyTorch is built with CUDA and sees no device: its guard is the one that does nothing, and no device has a context.

    Autograd asks for the context of the device that this guard counts, which the hooks of a CUDA build refuse to look for.  Elsewhere than on Linux on x86-64
    the hooks stay as they are.
    """
    torch._C._ensureCUDADeviceGuardSet()  # noqa: SLF001
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return
    find = ctypes.CDLL(engine.library("libtorch_cpu.so"))._ZN2at6detail12getCUDAHooksEv  # noqa: SLF001  # a C++ name
    find.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(find())
    assert hooks.value is not None
    slots = 160  # more than there are: what follows a table is other tables
    table = (ctypes.c_void_p * slots)(*(ctypes.c_void_p * slots).from_address(hooks.value - 16))
    table[2 + 4] = _no_context()
    _kept.append(table)
    hooks.value = ctypes.addressof(table) + 16


def _no_context() -> int | None:
    no = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(lambda _, __: 0)
    _kept.append(no)
    return ctypes.cast(no, ctypes.c_void_p).value


def _claim_cuda_hooks(library: Any) -> None:
    """Give the default CUDA hooks a table of their own in which CUDA is built and no device has a context.

    Slots in the order of ``AcceleratorHooksInterface.h`` under the Itanium ABI: 2 ``isBuilt``, 4 ``hasPrimaryContext``.
    """
    find = library._ZN2at6detail12getCUDAHooksEv  # noqa: SLF001  # a C++ name
    find.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(find())
    base = ctypes.addressof(ctypes.c_char.in_dll(library, "_ZTVN2at18CUDAHooksInterfaceE"))
    if hooks.value != base + 16:
        raise AssertionError("the CUDA hooks are not the default ones")
    slots = 98
    source = (ctypes.c_void_p * slots).from_address(base)
    table = (ctypes.c_void_p * slots)(*[source[i] for i in range(slots)])
    yes = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: 1)
    table[2 + 2] = ctypes.cast(yes, ctypes.c_void_p).value
    table[2 + 4] = _no_context()
    _kept.extend((yes, table))
    hooks.value = ctypes.addressof(table) + 16
    if torch._C._accelerator_getAccelerator().type != "cuda":  # noqa: SLF001
        hooks.value = base + 16
        raise AssertionError("PyTorch does not see the accelerator")


# -- Python ------------------------------------------------------------------------------------------------------------
class _Generators(type(torch.Generator)):  # type: ignore[misc]  # generators have a metaclass of their own
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch._C.Generator)  # noqa: SLF001


class _Generator(torch.Generator, metaclass=_Generators):
    """A generator of any device: its state is what counts, and lies on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, _on_cpu(torch.device(own_device.instead_of(device))))


def _synchronize(*_: Any, **__: Any) -> None:
    """The program waits for the device, and so for every collective."""
    recorder = state.current_recorder()
    if recorder is not None:
        recorder.synchronized()


def _replace_device_functions() -> None:
    FakeTensorMode.avoid_device_init = property(lambda _: True)
    own_device.install()
    torch.autograd.set_multithreading_enabled(False)
    generators = tuple(torch.Generator() for _ in range(DEVICES))
    torch.cuda.default_generators = generators
    torch.Generator = _Generator
    torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = CudaGraph
    torch.cuda.graph_pool_handle = torch.cuda.graphs.graph_pool_handle = always(
        (0, 0)
    )  # memory for captures, which none may follow
    for name, value in (_facts() | _random_state(generators) | _streams()).items():
        setattr(torch.cuda, name, value)
        if name in vars(torch.cuda.memory):
            setattr(torch.cuda.memory, name, value)
    for name, value in _low_level().items():
        setattr(torch._C, name, value)  # noqa: SLF001
    torch.cuda.nccl.version = always((2, 27, 5))
    torch.version.cuda = torch.version.cuda or _TOOLKIT
    torch.accelerator.device_count = always(DEVICES)
    torch.cuda.nvtx._nvtx = Profiler()  # noqa: SLF001
    dist.is_nccl_available = dist.distributed_c10d.is_nccl_available = always(True)
    torch.Tensor.record_stream = always(None)
    _replace_conversions()


def _facts() -> dict[str, Any]:
    properties = types.SimpleNamespace(
        name="no GPU: recorded only",
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=80 << 30,
        multi_processor_count=132,
        warp_size=32,
        gcnArchName="",
        shared_memory_per_block_optin=232448,
        L2_cache_size=50 << 20,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
    )
    counters = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    return {
        "is_available": always(True),
        "is_initialized": always(True),
        "device_count": always(DEVICES),
        "current_device": lambda: own_device.index(),
        "get_device_name": always(properties.name),
        "get_device_capability": always(CAPABILITY),
        "get_device_properties": always(properties),
        "get_arch_list": lambda: [f"sm_{CAPABILITY[0]}{CAPABILITY[1]}"],
        "is_bf16_supported": always(True),
        "is_current_stream_capturing": always(False),
        "can_device_access_peer": always(True),
        "mem_get_info": always((80 << 30, 80 << 30)),
        "memory_stats": lambda *_: collections.defaultdict(int),
        "memory_summary": always(""),
        "set_per_process_memory_fraction": always(None),
        "reset_max_memory_allocated": always(None),
        "reset_accumulated_memory_stats": always(None),
        "set_device": lambda device: own_device.choose(device),
        "synchronize": _synchronize,
        "empty_cache": always(None),
        "ipc_collect": always(None),
        "init": always(None),
        "reset_peak_memory_stats": always(None),
        "_initialized": True,
        "_lazy_init": always(None),
        "_lazy_call": always(None),
        "device": AnyDevice,
        "device_of": AnyDevice,
    } | {name: always(0) for name in counters}


def _random_state(generators: tuple[torch.Generator, ...]) -> dict[str, Any]:
    def seed_all(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    def index(device: Any) -> int:
        if isinstance(device, int):
            return device
        return (torch.device(device).index if device is not None and device != "cuda" else 0) or 0

    return {
        "manual_seed": lambda seed: seed_all(seed),
        "manual_seed_all": lambda seed: seed_all(seed),
        "seed": always(None),
        "seed_all": always(None),
        "initial_seed": lambda: generators[0].initial_seed(),
        "get_rng_state": lambda device=None: generators[index(device)].get_state(),
        "set_rng_state": lambda new, device=None: generators[index(device)].set_state(known_state(new)),
        "get_rng_state_all": lambda: [generator.get_state() for generator in generators],
        "set_rng_state_all": lambda new: [g.set_state(known_state(s)) for g, s in zip(generators, new, strict=False)],
    }


def known_state(value: torch.Tensor) -> torch.Tensor:
    """A generator's state as real bytes, whatever the program did to carry it along."""
    recorder = state.current_recorder()
    return value if recorder is None else recorder.constants.real(value)


def _streams() -> dict[str, Any]:
    default = Stream()
    return {
        "Stream": Stream,
        "Event": Event,
        "current_stream": always(default),
        "default_stream": always(default),
        "set_stream": always(None),
        "stream": lambda stream=None: stream or contextlib.nullcontext(),
    }


def _low_level() -> dict[str, Any]:
    return {
        "_cuda_getDevice": lambda: own_device.index(),
        "_cuda_setDevice": always(None),
        "_cuda_exchangeDevice": lambda _: own_device.index(),
        "_cuda_maybeExchangeDevice": lambda _: own_device.index(),
        "_accelerator_getDeviceIndex": lambda: own_device.index(),
        "_accelerator_setDeviceIndex": lambda device: own_device.choose(device),
        "_cuda_getDeviceCount": always(DEVICES),
        "_get_accelerator": always(torch.device("cuda")),
        "_cuda_isCurrentStreamCapturing": always(False),
        "_cuda_getCurrentRawStream": always(0),
    } | attention_kernels.answers()


_FACTORIES = (
    "empty", "zeros", "ones", "full", "rand", "randn", "randint", "arange", "tensor", "empty_like", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "as_tensor", "linspace", "eye", "empty_strided", "scalar_tensor", "randperm",
)  # fmt: skip
_TYPED = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


def _replace_conversions() -> None:
    """Devices given by number, ``.cuda()`` and the typed constructors."""
    original_to, original_cuda = torch.Tensor.to, torch.Tensor.cuda

    def to_cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:  # noqa: ARG001
        return original_to(self, own_device.device() if device is None else own_device.instead_of(device))

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int | str | torch.device):
            args = (own_device.instead_of(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = own_device.instead_of(kwargs["device"])
        return original_to(self, *args, **kwargs)

    torch.Tensor.__new__ = _legacy
    torch.Tensor.cuda = overridable(original_cuda, to_cuda)
    torch.Tensor.to = overridable(original_to, to)
    for name in _FACTORIES:
        setattr(torch, name, _with_numbered_devices(getattr(torch, name)))
    for name, dtype in _TYPED.items():
        setattr(torch.cuda, name, functools.partial(_typed, dtype))


def _with_numbered_devices(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = own_device.instead_of(kwargs["device"])
        return factory(*args, **kwargs)

    return known_to_scripts(factory, make)


def _legacy(*given: Any, **kwargs: Any) -> Any:
    """``torch.Tensor(...)``, which makes memory on the default device below everything that records; a signature with names would not be that of PyTorch's own."""
    cls, *args = given
    default = cls is torch.Tensor and not kwargs and torch.get_default_device().type == "cuda"
    if default and all(isinstance(arg, int) for arg in args):
        return torch.empty(*args or (0,))
    if default and len(args) == 1 and isinstance(args[0], list | tuple):
        return torch.tensor(args[0], dtype=torch.get_default_dtype())
    return torch._C.TensorBase.__new__(cls, *args, **kwargs)  # noqa: SLF001


def _typed(dtype: torch.dtype, *args: Any) -> Any:
    if args and isinstance(args[0], list | tuple):
        return torch.tensor(args[0], dtype=dtype, device=own_device.device())
    return torch.empty(*args, dtype=dtype, device=own_device.device())


class _AsCpu(TorchFunctionMode):
    """The fallback: whatever names a CUDA device gets the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.device:
            return _on_cpu(func(*args, **(kwargs or {})))  # not the CPU with a number
        plain = {key: _on_cpu(value) for key, value in (kwargs or {}).items()}
        return func(*(_on_cpu(arg) for arg in args), **plain)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value
