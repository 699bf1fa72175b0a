"""What the worker's machine and torch offer, for ``graphguard doctor``."""

from __future__ import annotations

import os
from typing import Any

from graphguard.trace.depends.cache import cache_folder

_WHY = {
    "build": "torch is built with CUDA; recording hides the devices and takes none of their memory",
    "guard": "torch is built without CUDA; recording stands in for the device",
    "rewrite": "this platform or torch is not known: what asks for cuda is recorded on cpu",
}


def describe() -> dict[str, Any]:
    """Devices with their free memory, how torch was built, and in which way code that hardcodes CUDA is recorded and why.

    Changes the process for good: runs in a child.
    """
    import torch

    from graphguard.trace.gpu import cuda

    built = torch.version.cuda
    devices = _devices()
    mode = cuda.install()
    return {
        "torch": torch.__version__,
        "cuda": {"built": built, "devices": devices, "mode": mode, "why": _WHY[mode]},
        "processors": os.cpu_count(),
        "cache": str(cache_folder()),
    }


def _devices() -> list[dict[str, Any]]:
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        found.append({"name": torch.cuda.get_device_name(index), "free": free, "total": total})
    return found
