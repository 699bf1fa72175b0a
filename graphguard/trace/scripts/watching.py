"""What a script does to its models, seen from PyTorch: when its parameters are first used, the losses that it differentiates, and the steps of its optimizers."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from graphguard.trace.calls.engine import replace_engine
from graphguard.trace.scripts.places import own_place
from graphguard.trace.source.errors import TracingError


class Finished(BaseException):
    """The script has made its steps; nothing of it is to run any more, and nothing of it is to catch this."""


class Programs:
    """The models of a script, as one callable: what is compared are the parameters of the modules among its attributes."""

    def __call__(self) -> None:
        """Nothing to call: the script runs them."""


@dataclass(slots=True)
class Watcher:
    """Watches one process until it has made so many ``steps``.

    ``moves``: whether any step had a learning rate other than zero.  ``begins`` is called once, with the models and what optimizers train beside their parameters, before they are first used in earnest; ``gathers`` before each of an optimizer's last steps, or after it where the step itself differentiates.
    ``is_one`` says of a gradient whether it is known to be the number one, with which a loss is differentiated.
    """

    steps: int
    begins: Callable[[Programs, dict[str, Any]], None]
    gathers: Callable[[torch.optim.Optimizer], None]
    is_one: Callable[[torch.Tensor], bool]
    begun: bool = False
    loss: Any = None
    losses: int = 0
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    made: dict[int, int] = field(default_factory=dict)
    stepped_at: Any = None
    moves: bool = False
    _inside: int = 0
    _differentiates: bool = False
    _differentiated: bool = False
    _hooks: list[Any] = field(default_factory=list)

    def install(self) -> None:
        """From now on, for the rest of this process."""
        make, backward = torch.optim.Optimizer.__init__, torch.autograd.backward

        @functools.wraps(make)
        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers.append(optimizer)

        @functools.wraps(backward)
        def differentiated(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._begin()
            outermost, self._differentiates = not self._differentiates, True
            try:
                if outermost:
                    self._note(tensors, args[0] if args else kwargs.get("grad_tensors"))
                return backward(tensors, *args, **kwargs)
            finally:
                self._differentiates = not outermost

        def engine(run: Any) -> Any:
            """Also that of those who call it themselves."""

            @functools.wraps(run)
            def run_backward(tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> Any:
                self._differentiated = True
                if not self._differentiates and kwargs.get("accumulate_grad"):
                    self._begin()
                    self._note(tensors, grad_tensors)
                return run(tensors, grad_tensors, *args, **kwargs)

            return run_backward

        torch.optim.Optimizer.__init__ = made
        torch.autograd.backward = differentiated
        replace_engine(engine)
        self._hooks.append(register_module_forward_pre_hook(self._called))
        register_optimizer_step_pre_hook(self._steps)
        register_optimizer_step_post_hook(self._stepped)

    # -- the beginning -------------------------------------------------------------------------------------------------
    def _called(self, module: nn.Module, _: Any) -> None:
        if self.begun or not torch.is_grad_enabled():
            return
        trained = {id(parameter) for parameter in self._trained()}
        called = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if any(id(parameter) in trained for parameter in called) or (called and self._copied(trained)):
            self._begin()

    def _copied(self, trained: set[int]) -> bool:
        """Whether optimizers train anything that no module holds, as a copy of its parameters in another type."""
        held = {id(parameter) for one in _modules() for parameter in one.parameters(recurse=False)}
        return not trained <= held

    def _begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        for hook in self._hooks:
            hook.remove()
        self.begins(*self._programs())

    def _trained(self) -> Iterator[Any]:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]

    def _programs(self) -> tuple[Programs, dict[str, Any]]:
        """The outermost modules that hold what optimizers train, in the order of that, and parameters of no module by their number.

        Where there are such, also the modules that could be trained and are not: those may be copies of theirs.
        """
        found = Programs()
        trained = list(self._trained())
        order = {id(parameter): place for place, parameter in reversed(list(enumerate(trained)))}
        modules = _modules()
        loose = self._copied(set(order))
        inner = {id(part) for one in modules for part in one.modules() if part is not one}
        roots = []
        held: set[int] = set()
        for one in modules:
            if id(one) in inner:
                continue
            parameters = list(one.parameters())
            places = [order[id(parameter)] for parameter in parameters if id(parameter) in order]
            if places or (loose and any(parameter.requires_grad for parameter in parameters)):
                roots.append((min(places, default=len(trained)), type(one).__name__, len(parameters), one))
                held.update(id(parameter) for parameter in parameters)
        for place, (*_, root) in enumerate(sorted(roots, key=lambda known: known[:3])):
            inner_root = _unwrapped(root)
            setattr(found, f"{type(inner_root).__name__}{place or ''}", inner_root)
        names = {f"parameter{number}": one for number, one in enumerate(trained) if id(one) not in held}
        return found, names

    # -- losses --------------------------------------------------------------------------------------------------------
    def _note(self, tensors: Any, gradients: Any) -> None:
        listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        for place, one in enumerate(listed):
            gradient = gradients[place] if isinstance(gradients, tuple | list) else gradients
            if one.numel() == 1 and (gradient is None or self.is_one(gradient)):
                value = one.detach().clone().reshape(())
                value = value.full_tensor() if hasattr(value, "full_tensor") else value
                self.loss = value if self.loss is None else self.loss + value
                self.losses += 1

    # -- steps ---------------------------------------------------------------------------------------------------------
    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._inside += 1
        if self._inside > 1:
            return  # an optimizer that another one has
        if not (self._differentiated or _closure(args, kwargs)):
            return  # with gradients of zero, as wrappers step an optimizer to have it make its state
        self._begin()
        self.stepped_at = self.stepped_at or own_place()
        self.moves = self.moves or any(group.get("lr", 1) != 0 for group in optimizer.param_groups)
        if self._count(optimizer) >= self.steps:
            raise Finished  # others never stepped, or are behind
        if self._count(optimizer) == self.steps - 1 and not _closure(args, kwargs):
            self.gathers(optimizer)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._inside -= 1
        if self._inside or not (self._differentiated or _closure(args, kwargs)):
            return
        self.made[id(optimizer)] = self._count(optimizer) + 1
        if self.made[id(optimizer)] == self.steps and _closure(args, kwargs):
            self.gathers(optimizer)
        waiting = [one for one in self.optimizers if self._count(one) < self.steps and self._is_outer(one)]
        if any(self._has_gradients(one) for one in waiting):
            return
        if not self._copied({id(parameter) for parameter in self._trained()}):
            raise Finished
        # what was trained is a copy: the parameters follow it before the models are used again
        register_module_forward_pre_hook(_finish)

    def _count(self, optimizer: Any) -> int:
        return self.made.get(id(optimizer), 0)

    def _is_outer(self, optimizer: Any) -> bool:
        """Whether an optimizer is the script's to step: not one whose parameters one that has stepped has, too."""
        stepped = {
            id(parameter)
            for one in self.optimizers
            if one is not optimizer and self._count(one)
            for group in one.param_groups
            for parameter in group["params"]
        }
        mine = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        return not any(one in stepped for one in mine)

    def _has_gradients(self, optimizer: Any) -> bool:
        return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def _modules() -> list[nn.Module]:
    return [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]


def _finish(*_: Any) -> None:
    raise Finished


def _closure(args: Any, kwargs: Any) -> Any:
    return kwargs.get("closure") or next((one for one in args[1:] if callable(one)), None)


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module that DDP wraps, whose parameters have the names that the script knows."""
    return _unwrapped(module.module) if isinstance(module, DistributedDataParallel) else module


def never_stepped(name: str) -> TracingError:
    """What is said of a script that ended before any optimizer stepped."""
    return TracingError(
        "trace-error",
        f"{name} ended without a step of an optimizer, so there is nothing to compare\n"
        "fix: give arguments with which it trains, such as one epoch; parameters that a script changes by itself are checked with gg.verify",
    )
