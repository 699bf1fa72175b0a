"""Names that a check gets wrong: a mesh axis that its mesh does not have, an argument that a function of GraphGuard's does not take."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Mapping

from graphguard.trace.claims import api
from graphguard.trace.source.misnamed import did_you_mean, no_such_axis

_UNEXPECTED = re.compile(r"(?P<function>\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_QUOTED = re.compile(r"'(\w+)'")
_MESH_CODE = "torch.distributed.device_mesh"


def misnamed(error: BaseException, mesh: Mapping[str, int]) -> str | None:
    """What an error is about, if it is about a name that is not there; None for any other error."""
    if isinstance(error, KeyError):
        return _axis(error, mesh)
    return _argument(error) if isinstance(error, TypeError) else None


def _axis(error: KeyError, mesh: Mapping[str, int]) -> str | None:
    """A mesh axis that PyTorch's ``DeviceMesh`` was asked for and does not have."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames or frames[-1].f_globals.get("__name__") != _MESH_CODE:
        return None
    absent = [name for name in _QUOTED.findall(str(error)) if name not in mesh]
    return no_such_axis(absent[0], mesh) if absent else None


def _argument(error: TypeError) -> str | None:
    """An argument that a function of GraphGuard's was given and does not take."""
    said = _UNEXPECTED.match(str(error))
    function: Callable[..., object] | None = getattr(api, said["function"], None) if said is not None else None
    if said is None or function is None or getattr(function, "__module__", "") != api.__name__:
        return None
    known = list(inspect.signature(function).parameters)
    meant = did_you_mean(said["name"], known) or f"; it takes {', '.join(known)}"
    return f"gg.{said['function']} has no argument {said['name']!r}{meant}"
