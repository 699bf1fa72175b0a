"""The memory of the process that is forked for every check, in pages of two megabytes where the kernel has them (Linux 6.1).

A fork copies the table of all pages, and an exit takes it apart: 5 ms each for the 60,000 small pages of a process that has torch loaded, a tenth of that for large ones.
What a child writes to is copied in small pages as before.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator

LARGE = 2 << 20
_SMALL = 4096
_MADV_COLLAPSE = 25
# A range with more unused pages than that stays as it is: what nobody uses is to take no memory.
_UNUSED = LARGE // _SMALL // 8


def large_ranges() -> Iterator[int]:
    """Where the ranges of this process's own memory begin that a large page could hold."""
    if not sys.platform.startswith("linux") or mmap.PAGESIZE != _SMALL:
        return
    with open("/proc/self/maps") as lines:
        for line in lines:
            fields = line.split()
            if fields[1] == "rw-p" and fields[4] == "0" and fields[5:] in ([], ["[heap]"]):
                first, end = (int(place, 16) for place in fields[0].split("-"))
                yield from range(-(-first // LARGE) * LARGE, end - LARGE + 1, LARGE)


def join_pages(start: int) -> bool:
    """Put a range into one large page, unless it is in one or is mostly unused; False where the kernel has none to give."""
    libc = ctypes.CDLL(None, use_errno=True)
    resident = (ctypes.c_ubyte * (LARGE // _SMALL))()
    place, length = ctypes.c_void_p(start), ctypes.c_size_t(LARGE)
    if libc.mincore(place, length, resident) != 0 or bytes(resident).count(0) > _UNUSED:
        return True
    return bool(libc.madvise(place, length, _MADV_COLLAPSE) == 0)
