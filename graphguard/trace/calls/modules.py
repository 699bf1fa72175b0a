"""Which module of the program is running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module


class ModulePaths:
    """Qualified names of the modules being called, outermost first; the innermost is ``here``."""

    def __init__(self) -> None:
        self.here = ""
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._alive: list[nn.Module] = []
        self.counts: Counter[type] = Counter()

    def root(self, module: nn.Module, name: str = "") -> None:
        """Names of this module's parts start at it."""
        self._alive.append(module)
        for path, part in module.named_modules():
            self.counts[type(part)] += id(part) not in self._names
            self._names[id(part)] = ".".join(filter(None, (name, path)))

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Keep ``here`` right while modules are called."""
        hooks = (
            torch_module.register_module_forward_pre_hook(self._enter),
            torch_module.register_module_forward_hook(self._leave, always_call=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def name(self, module: nn.Module) -> str | None:
        """The qualified name of a module, where it has one yet."""
        return self._names.get(id(module))

    def enter(self, module: nn.Module) -> None:
        """A module is called."""
        path = self._names.get(id(module))
        if path is None:
            self.root(module, ".".join(filter(None, (self.here, type(module).__name__))))
            path = self._names[id(module)]
        self._stack.append(self.here)
        self.here = path

    def leave(self) -> None:
        """The module that was called last has returned."""
        self.here = self._stack.pop() if self._stack else ""

    def _enter(self, module: nn.Module, args: Any) -> None:  # noqa: ARG002  # torch's signature
        self.enter(module)

    def _leave(self, module: nn.Module, args: Any, result: Any) -> None:  # noqa: ARG002  # torch's signature
        self.leave()
