"""What programs leave behind in modules, of which a comparison of their results says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from graphguard.trace.claims.parameters import plain_name
from graphguard.trace.programs.compared import Program

_SHOWN: Final = 3


def left_behind(spec: Program, ranks: Sequence[Program]) -> Iterator[str]:
    """Gradients and parameters that are not compared, in words."""
    programs = (spec, *ranks)
    wrote = _plain(name for one in programs for name in one.claims.left.wrote)
    returned = {plain_name(name) for one in programs for name in one.claims.left.returned}
    if changed := [name for name in wrote if name not in returned]:
        yield f"what is written into {_listed(changed)}: return the parameters to have them compared"
    trained = _plain(name for one in programs for name in one.claims.left.trained)
    if not any(one.claims.left.closed_over for one in programs):
        if trained and not spec.claims.left.trained:
            yield f"the gradients of {_listed(trained)}, which the ranks train and the specification does not"
        return
    lying = _plain(name for one in programs for name in one.noted.lying)
    known = {name for one in programs for name in _compared_gradients(one)}
    if lost := [name for name in lying if name not in known and not (name in wrote and name in returned)]:
        yield f"the gradients that are left in {_listed(lost)}: return gg.gradients(model) to have them compared"
    if trained and not lying and not known and any(one.differentiable for one in spec.claims.outputs):
        yield (
            f"the gradients of {_listed(trained)}, which a function closes over: give the module itself, or call backward and return gg.gradients(model), "
            "to have them compared"
        )


def _compared_gradients(one: Program) -> Iterator[str]:
    """The parameters of which a gradient is among the results."""
    results = set(one.graph.outputs.values())
    yield from (plain_name(name) for var, name in one.noted.gradients.items() if var in results)
    yield from (plain_name(name[5:-1]) for name in one.claims.gradients)


def _plain(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(plain_name, names)))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more parameters"
