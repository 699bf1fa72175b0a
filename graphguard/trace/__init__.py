"""The tracing worker: runs user code in forked children of a warm process and writes down every operator."""

from typing import Final

OLDEST_TORCH: Final = (2, 10)


def release(torch: str) -> tuple[int, ...]:
    """The first two numbers of a version of torch: ``(2, 13)`` of ``2.13.0+cpu``."""
    return tuple(int(part) for part in torch.split("+")[0].split(".")[:2])
