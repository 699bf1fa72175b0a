"""A process whose autograd engine has threads cannot be forked: the engine starts none, whatever kinds of devices a build of PyTorch counts."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As a build with Vulkan has it: a guard that counts one device, on a machine without one.  A child of a process with threads cannot differentiate.
_PROGRAM = """
import ctypes, os, torch
from graphguard.trace.gpu import engine

one = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: 1)
table = (ctypes.c_void_p * 64)(*[ctypes.cast(one, ctypes.c_void_p).value] * 64)
guard = (ctypes.c_void_p * 1)(ctypes.addressof(table))
VULKAN = 10
engine.device_guards()[VULKAN] = ctypes.addressof(guard)
{start}
assert engine.device_guards()[VULKAN] == ctypes.addressof(guard)
child = os.fork()
if not child:
    try:
        torch.ones(1, requires_grad=True).sum().backward()
    except RuntimeError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the registry of guards is found on Linux")
@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("engine.start_without_threads()", ""),
        ("torch.ones(1, requires_grad=True).sum().backward()", "autograd's threading in combination with fork"),
    ],
)
def test_engine_starts_no_threads_for_a_device_that_a_build_counts(start: str, said: str) -> None:
    program = _PROGRAM.format(start=start)
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert said in found.stdout
    assert bool(said) == bool(found.stdout)
