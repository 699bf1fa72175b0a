"""One run of a script, recorded: its parameters and samples as leaves, its loss, gradients, parameters and the state of its optimizers as outputs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from graphguard.ir import Placement, Span
from graphguard.ir.capture import Like, Wanted
from graphguard.ir.kept import kept_in
from graphguard.trace.calls.state import current_world
from graphguard.trace.claims.api import Refinement, gradient_in
from graphguard.trace.claims.inputs import Inputs
from graphguard.trace.claims.leaves import Leaves
from graphguard.trace.claims.loading import bind_rank, bind_specification
from graphguard.trace.claims.outputs import OutputType
from graphguard.trace.claims.parameters import State, is_distributed, local_tensor, named_alike, plain_name
from graphguard.trace.claims.placements import Mesh
from graphguard.trace.claims.program import Claims
from graphguard.trace.claims.same import Original, beside, original
from graphguard.trace.claims.units import Unit, unit_of
from graphguard.trace.gpu.cuda import NeedsCuda
from graphguard.trace.record.branches import Decision
from graphguard.trace.record.capture import Recording
from graphguard.trace.scripts.launching import prepare, run_main
from graphguard.trace.scripts.refusals import Scratch, refuse, started
from graphguard.trace.scripts.samples import Batch, Reading, Samples
from graphguard.trace.scripts.script import LOSS, START, UNSEEDED, Script
from graphguard.trace.scripts.watching import Finished, Programs, Watcher, never_stepped
from graphguard.trace.source.errors import TracingError
from graphguard.trace.source.sources import ProjectFiles

_NOTHING = Inputs((), {}, ())


class AgainError(Exception):
    """The script must be recorded on another mesh: one that it makes itself, all of whose axes count."""

    def __init__(self, mesh: dict[str, int]) -> None:
        super().__init__(mesh)
        self.mesh = mesh


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of a script says beside its claims: which branches on numbers it took, what its loaders handed out, over how many ranks it averages gradients by what it says, where it stepped, what it wrote, whether its wrappers broadcast parameters, and whether its learning rate was ever other than zero."""

    readings: tuple[Reading, ...] = ()
    replicas: int = 0
    losses: int = 0
    stepped: Span | None = None
    wrote: tuple[str, ...] = ()
    broadcasts: bool = False
    not_compared: tuple[str, ...] = ()
    moves: bool = True
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True)
class Channel:
    """How the reference, which has neither question, tells the ranks what they need: its parameters, and at its end its batches and its outputs."""

    tell: Callable[[str, Any], None]
    ask: Callable[[str], Any]


@dataclass(slots=True)
class _Recorded:
    """One run on its way."""

    recording: Recording
    script: Script
    mesh: Mesh
    rank: int
    alone: bool
    channel: Channel
    leaves: Leaves
    unit: Unit | None = None
    specification: Unit | None = None
    wanted: dict[str, Wanted] | None = None
    states: dict[int, str] | None = None
    meshes: list[dict[str, int]] | None = None
    titles: dict[str, str] = field(default_factory=dict)

    def begin(self, programs: Programs, loose: dict[str, Any]) -> None:
        """The script uses its parameters, and what its optimizers train beside them: from here on they are unknown."""
        recording = self.recording
        for name, one in self._own(programs, loose):
            setattr(programs, name, one)
        self.wanted, self.unit = {}, unit_of(programs)
        if self.alone:
            self.channel.tell("original", original(recording, self.unit, _NOTHING))
            bind_specification(recording, self.leaves, self.unit)
        else:
            if not self.script.mesh and self.meshes and self.meshes[0] != self.mesh.sizes:
                raise AgainError(self.meshes[0])
            told: Original = self.channel.ask("original")
            refinement = Refinement(programs, programs, ())
            self.specification = beside(recording, told, self.unit, _NOTHING)
            self.titles = {
                plain_name(name): state.name
                for state in self.specification.states
                for name in (state.name, *state.aliases)
            }
            self._note_starts(self.specification, unit_of(programs))
            bind_rank(recording, self.leaves, refinement, self.specification, unit_of(programs), self.mesh, None)
        self.states = {id(state.tensor): state.name for state in self.named()}
        recording.phase = "forward"

    def _note_starts(self, specification: Unit, own: Unit) -> None:
        """Parameters of which every rank has the whole, as the script has made them."""
        whole = {state.name: tuple(state.tensor.shape) for state in specification.states if state.kind == "parameter"}
        with torch.no_grad():
            for state in named_alike(specification.states, own.states):
                if not is_distributed(state.tensor) and whole.get(state.name) == tuple(state.tensor.shape):
                    self.recording.output(f"{START}{state.name}", state.tensor)

    def _own(self, programs: Programs, loose: dict[str, Any]) -> list[tuple[str, Any]]:
        """Those of some trained tensors that were not made of the modules' parameters, whose values these follow."""
        if not loose:
            return []
        parameters = [one for module in vars(programs).values() for one in module.parameters()]
        made = [self.recording.read_since_birth(one) for one in parameters]
        origins = self.recording.origins(
            [one if born is None else born for one, born in zip(parameters, made, strict=True)]
        )
        return [(name, one) for name, one in loose.items() if not origins.of(one)]

    def is_one(self, gradient: torch.Tensor) -> bool:
        """Whether a tensor is known to hold the number one alone."""
        known = self.recording.known(gradient)
        return known is not None and bool((known == 1).all())

    def named(self) -> list[State]:
        """The parameters and buffers as they are now, under the names that they have in comparisons."""
        assert self.unit is not None
        now = unit_of(self.unit.call).states
        return list(now) if self.specification is None else named_alike(self.specification.states, now)

    def gather(self, optimizer: torch.optim.Optimizer) -> None:
        """The gradients of what an optimizer is about to change."""
        for name, parameter in self.owned(optimizer):
            gradient = gradient_in(parameter)
            if gradient is None and not self.alone:
                gradient = torch.zeros_like(parameter.detach())
            if gradient is not None:
                self.output(f"grad({self.titled(name)})", _placed_as(gradient, parameter), Like(name))

    def owned(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Any]]:
        """The parameters of an optimizer that are known, by name."""
        known = self.states or {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in known:
                    yield known[id(parameter)], parameter

    def titled(self, name: str) -> str:
        """The reference's name of a parameter, which a wrapper may have that it lacks."""
        return name if self.specification is None else self.titles.get(plain_name(name), name)

    def output(self, name: str, value: Any, wanted: Wanted) -> None:
        """A result, and the relation in which it must stand."""
        assert self.wanted is not None
        with torch.no_grad():
            self.recording.output(name, _local(value))
        self.wanted[name] = wanted

    def end(self, watcher: Watcher) -> list[str]:
        """Record what the steps left; returns what is not compared."""
        left: list[str] = []
        for state in self.named():
            self.output(kept_in(self.titled(state.name)), state.tensor, Like(state.name))
        for optimizer in watcher.optimizers:
            left += self._state_of(optimizer)
        assert self.wanted is not None
        for decision in self.recording.decisions:
            self.wanted[decision.output] = self._everywhere()
        if watcher.loss is not None and self.script.loss:
            self.output(LOSS, self._averaged(watcher.loss), self._everywhere())
        return list(dict.fromkeys(left))

    def _everywhere(self) -> Wanted:
        return {axis: Placement("replicate") for axis in self.mesh.sizes}

    def _averaged(self, loss: Any) -> Any:
        """The loss that the ranks differentiate together: the mean of their own, where each has a part of the samples."""
        if self.alone or not self.script.parts or not dist.is_initialized():
            return loss
        loss = loss.clone()
        with torch.no_grad():
            dist.all_reduce(loss)
            return loss / dist.get_world_size()

    def _state_of(self, optimizer: torch.optim.Optimizer) -> Iterator[str]:
        trained = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
        if not all(one in (self.states or {}) for one in trained):
            yield f"gradients and state of {type(optimizer).__name__} where it trains copies of parameters"
        for name, parameter in self.owned(optimizer):
            state = optimizer.state.get(parameter, {})
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor) and tuple(value.shape) == tuple(parameter.shape):
                    self.output(f"{key}({self.titled(name)})", value, Like(name))
                elif isinstance(value, torch.Tensor) and value.numel() > 1:
                    yield f"{key} of {type(optimizer).__name__}, which has another shape than its parameter"


def record_script(
    recording: Recording,
    script: Script,
    files: ProjectFiles,
    mesh: Mesh,
    rank: int,
    channel: Channel,
    *,
    alone: bool,
) -> tuple[Claims, Run]:
    """Run a script in this process, which is to do nothing else afterwards, until it has made its steps; raises what it raises."""
    size = 1 if alone else mesh.world_size
    run = _Recorded(recording, script, mesh, rank, alone, channel, Leaves(recording), meshes=[])
    watcher = Watcher(script.steps, run.begin, run.gather, run.is_one)
    samples = Samples(recording, script, rank, None if alone else lambda: channel.ask("outputs")[1])
    scratch = Scratch(script.scratch)
    prepare(script, rank, size)
    recording.runs_a_script()
    refuse()
    scratch.install()
    samples.install()
    watcher.install()
    _watch_meshes(run, size)
    torch.manual_seed(UNSEEDED)  # a sampler that shuffles reads what it draws
    try:
        run_main(script, files, alone=alone)
        ended = True
    except Finished:
        ended = False
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
        ended = True
    if ended and not any(watcher.made.values()):
        world = current_world()
        if world is not None and world.device == "cpu" and world.asked_for_cuda:
            raise NeedsCuda  # a script that looks for devices, and finds none, ends
        raise never_stepped(script.name)
    left = run.end(watcher)
    if started:
        left.append(f"what programs do that the script starts, which write where they will: {', '.join(started)}")
    outputs = (
        (OutputType(LOSS, (), "float32", differentiable=False),) if watcher.loss is not None and script.loss else ()
    )
    if alone:
        batches: list[Batch] = samples.batches
        channel.tell("outputs", (outputs, batches))
    leaves = (*run.leaves.found(), *samples.leaves.values())
    wanted = {name: one for name, one in (run.wanted or {}).items() if not alone or name == LOSS}
    claims = Claims(leaves, outputs, wanted, (LOSS,) if outputs else ())
    wrote = tuple(scratch.files())
    replicas, broadcasts = _replicas()
    return claims, Run(
        tuple(samples.readings),
        replicas,
        watcher.losses,
        watcher.stepped_at,
        wrote,
        broadcasts,
        tuple(left),
        watcher.moves,
        recording.decisions,
    )


def _watch_meshes(run: _Recorded, size: int) -> None:
    """Note the meshes of several axes over all ranks that the script makes."""
    make = DeviceMesh.__init__

    def made(mesh: Any, *args: Any, **kwargs: Any) -> None:
        make(mesh, *args, **kwargs)
        shape = tuple(mesh.shape)
        if len(shape) > 1 and mesh.size() == size and not run.alone and run.meshes is not None:
            names = mesh.mesh_dim_names or tuple(f"dim{place}" for place in range(len(shape)))
            run.meshes.append(dict(zip(names, shape, strict=True)))

    DeviceMesh.__init__ = made


#: Wrappers of libraries that average gradients, by where they are defined; what gives the size of the group that they average over.
_AVERAGING: dict[tuple[str, str], Callable[[Any], int]] = {
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"): lambda one: (
        one.process_group.size() * (one._inter_node_pg.size() if hasattr(one, "_inter_node_pg") else 1)  # noqa: SLF001
    ),
    ("deepspeed.runtime.engine", "DeepSpeedEngine"): lambda one: int(one.dp_world_size),
    ("megatron.core.distributed.distributed_data_parallel", "DistributedDataParallel"): lambda one: one.dp_group.size(),
}


def _replicas() -> tuple[int, bool]:
    """Over how many ranks the script's wrappers average gradients; 0 where it has none of those that are known; and whether one of them broadcasts parameters when it is made."""
    found, broadcasts = 0, False
    averaging = {
        kind: size
        for (module, name), size in _AVERAGING.items()
        if (kind := vars(sys.modules.get(module, ModuleType(module))).get(name)) is not None
    }
    for one in gc.get_objects():
        kind = type(one)
        size = averaging.get(kind)
        if size is not None:
            found = max(found, size(one))
        elif issubclass(kind, DistributedDataParallel):
            found, broadcasts = max(found, one.process_group.size()), True
        elif issubclass(kind, FSDPModule):
            state = one._get_fsdp_state()  # noqa: SLF001 - the only place that knows
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]  # noqa: SLF001
            for info in (group.mesh_info for group in groups if group is not None):
                found = max(found, getattr(info, "shard_mesh_size", 1) * getattr(info, "replicate_mesh_size", 1))
    return found, broadcasts


def _placed_as(gradient: Any, tensor: Any) -> Any:
    if not hasattr(gradient, "placements") or gradient.placements == getattr(tensor, "placements", None):
        return gradient
    return gradient.redistribute(placements=tensor.placements)


def _local(value: Any) -> Any:
    if hasattr(value, "trigger_wait"):
        value = value.trigger_wait()
    return local_tensor(value)


def refused(error: BaseException) -> TracingError | None:
    """A library's error that stands for one of the script's refusals, as it says itself."""
    while error is not None:
        if isinstance(error, TracingError):
            return error
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return None
