"""PyTorch's autograd engine starts a thread for every device the first time that it is asked, and a process whose engine has threads cannot be forked."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import torch

_KINDS = 16  # the first of ``c10::DeviceType``; the registry of device guards has room for more


def library(name: str) -> str:
    """Where a library of PyTorch lies."""
    return os.path.join(os.path.dirname(torch.__file__), "lib", name)


def device_guards() -> Any:
    """PyTorch's registry of device guards, one pointer for each kind of device; raises ``OSError`` or ``ValueError`` where there is none of that name."""
    return (ctypes.c_void_p * _KINDS).in_dll(
        ctypes.CDLL(library("libc10.so")), "_ZN3c104impl26device_guard_impl_registryE"
    )


def start_without_threads() -> None:
    """Ask the engine for the first time while the CPU's guard alone is there, so that it starts no threads: Debian's build, with Vulkan, counts a device on every machine."""
    try:
        guards = device_guards() if sys.platform == "linux" else []
    except (OSError, ValueError):
        guards = []  # a PyTorch in other libraries: its engine starts what threads it will
    kept = list(guards)
    for kind in range(1, len(kept)):
        guards[kind] = None
    try:
        x = torch.ones(1, requires_grad=True)
        x.sum().backward()
    finally:
        for kind in range(1, len(kept)):
            guards[kind] = kept[kind]
