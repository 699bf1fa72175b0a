"""Why a rank's program may have failed though the specification runs: sizes that the mesh does not divide."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from graphguard.trace.source.sources import is_own_code

_SHOWN = 3
_FRAMES = 6
# Names of numbers that tensor, expert and sequence parallelism divide.
_DIVIDED = re.compile(
    r"head|kv|hidden|embed|width|dim|size|vocab|expert|feature|seq|length|chunk|^n_|^d_", re.IGNORECASE
)
_SHAPES = re.compile(
    r"shape|size|dimension|split|chunk|element|length|channel|head|multipl|divi|range|modulo|empty", re.IGNORECASE
)
_DIVISION = re.compile(r"divi|multiple|remainder", re.IGNORECASE)
_SETTINGS = re.compile(r"^(self|cfg|config|args|options|hparams|model_args)$")


def indivisible(error: BaseException, mesh: Mapping[str, int], modules: tuple[Any, ...]) -> list[str]:
    """Numbers of the failing code, or of the modules that were built, that no axis of the mesh divides: ``n_heads = 3 is not divisible by tp=4``.

    None where the error is about something else: an error of torch about other things than shapes, or one that the program raises itself for another reason.
    """
    raised = _raised_at(error.__traceback__)
    if raised is None and not _SHAPES.search(str(error)):
        return []
    axes = {axis: size for axis, size in mesh.items() if size > 1}
    found: dict[str, None] = {}
    for name, value in (*_in_frames(error.__traceback__), *_in_modules(modules)):
        remainders = [f"{axis}={size}" for axis, size in axes.items() if value % size]
        # a number that some axis divides is meant for that axis
        if remainders and len(remainders) == len(axes) and (raised is None or _is_about(error, raised, name)):
            found.setdefault(f"{name} = {value} is not divisible by {' or '.join(remainders)}")
    return list(found)[:_SHOWN]


def _raised_at(trace: TracebackType | None) -> ast.stmt | None:
    """The statement of the user's own code that raises an error, with the condition for it; None where code that it calls does."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_own_code(trace.tb_frame.f_code.co_filename):
        return None
    try:
        tree = ast.parse("".join(linecache.getlines(trace.tb_frame.f_code.co_filename)))
    except SyntaxError:
        return None
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        inside = isinstance(node, ast.stmt) and node.lineno <= trace.tb_lineno <= (node.end_lineno or node.lineno)
        if inside and isinstance(node, ast.Raise | ast.Assert):
            return found if isinstance(node, ast.Raise) and isinstance(found, ast.If) else node
        if inside and isinstance(node, ast.stmt):
            found = node  # from the outside in
    return None


def _is_about(error: BaseException, raised: ast.stmt, name: str) -> bool:
    """Whether a raised error is about a number that is not divisible: it says so, or is raised where a remainder or a quotient of the number is looked at."""
    named = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    if _DIVISION.search(str(error)) or named.search(str(error)):
        return True
    if not isinstance(raised, ast.If | ast.Assert) or not named.search(ast.unparse(raised.test)):
        return False
    return any(isinstance(node, ast.Mod | ast.FloorDiv) for node in ast.walk(raised.test))


def _in_frames(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    frames = []
    while trace is not None:
        if is_own_code(trace.tb_frame.f_code.co_filename):
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames[-_FRAMES:]):
        for name, value in frame.f_locals.items():
            if _SETTINGS.match(name):
                yield from _numbers(getattr(value, "__dict__", {}), f"{name}.")
        yield from _numbers(frame.f_locals, "")


def _in_modules(modules: tuple[Any, ...]) -> Iterator[tuple[str, int]]:
    for module in modules:
        for part in module.modules() if hasattr(module, "modules") else ():
            if is_own_code(_file_of(type(part))):
                yield from _numbers(vars(part), f"{type(part).__name__}.")


def _file_of(kind: type) -> str:
    forward = getattr(kind, "forward", None)
    code = getattr(forward, "__code__", None)
    return code.co_filename if code is not None else "<unknown>"


def _numbers(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 1 and _DIVIDED.search(name):
            yield prefix + name, value
