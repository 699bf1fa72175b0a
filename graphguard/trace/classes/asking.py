"""Where a program asks which rank it is, a rank that is sounded answers with numbers that know all ranks.

Inside PyTorch's own communication, and where the recorder asks, ranks are plain: what comes of that is in the graph.  A group is known by its members on every rank.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any, Final

import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import Backend
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from graphguard.trace.calls import constants as constants_module
from graphguard.trace.calls.constants import storage_of, tensors_in
from graphguard.trace.classes import calls
from graphguard.trace.classes.calls import Following
from graphguard.trace.classes.numbers import Number, Sounding
from graphguard.trace.classes.subscripts import container, taken
from graphguard.trace.record import values as values_module
from graphguard.trace.source.rewriting import NAME
from graphguard.trace.source.sources import is_standard, is_torch

_HOOK: Final = "__graphguard_sounded__"
_COLLECTIVES: Final = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "broadcast", "reduce", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv", "barrier", "batch_isend_irecv",
)  # fmt: skip
# Of whose root it is seen in a graph whether this rank is it.
_PEERS: Final = ("src", "dst", "group_src", "group_dst")
_MAKE_GROUPS: Final = ("new_subgroups", "new_subgroups_by_enumeration", "split_group")
_VARIABLES: Final = frozenset(
    (
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "NODE_RANK",
        "ROLE_RANK",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "OMPI_COMM_WORLD_RANK",
    )
)
_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What a check claims is recorded as well, and memory that ranks share is told to programs with their ranks.
_NOT_OURS: Final = (_HERE + "claims" + os.sep, os.path.join(_HERE, "replace", "symmetric.py"))
_ASKS: Final = "get_node_local_rank"
_MESHES: Final = ("get_rank", "get_local_rank", "get_coordinate", "_sym_get_coordinate")


class Asking:
    """Answers for one rank that is sounded, for the rest of this process."""

    def __init__(self, sounding: Sounding) -> None:
        self.sounding = sounding
        self.size = len(sounding.alike)
        self.members: dict[str, Callable[[int], tuple[int, ...]]] = {}
        self._siblings: dict[int, tuple[Any, dict[int, tuple[tuple[int, ...], Any]]]] = {}

    def install(self, following: Following) -> None:
        """Begin."""
        self._functions()
        self._meshes()
        self._environment()
        self._constants(following)
        calls.install(following)
        self.sounding.taken = functools.partial(_taken, following)
        made = getattr(builtins, NAME, None)
        if made is not None:
            setattr(
                builtins,
                NAME,
                lambda function, *rest: (
                    rest[0] if function is int and len(rest) == 1 and type(rest[0]) is Number else made(function, *rest)
                ),
            )

    # -- ranks ---------------------------------------------------------------------------------------------------------
    @contextmanager
    def plain(self) -> Iterator[None]:
        """Inside, ranks are plain."""
        self.sounding.depth += 1
        try:
            yield
        finally:
            self.sounding.depth -= 1

    def number(self, of: Callable[[int], Any]) -> Any:
        """What a number is on every rank."""
        return self.sounding.number({rank: of(rank) for rank in self.sounding.alike})

    def of_group(self, group: Any) -> Callable[[int], tuple[int, ...]]:
        """The members of a group on every rank."""
        group = group or dist.group.WORLD
        ranks = tuple(_original(c10d.get_process_group_ranks)(group))
        if len(ranks) == self.size:
            return lambda _: ranks
        known = self.members.get(group.group_name)
        if known is None:  # one that nobody said anything of: its members alone have it
            self.sounding.keep({rank: rank in ranks for rank in self.sounding.alike}, self.sounding.unfollowed)
            return lambda _: ranks
        return known

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of ``torch.distributed`` is called."""
        original = _originals[name]
        if self.sounding.depth or _is_ours(sys._getframe(2).f_code.co_filename):  # noqa: SLF001 - who asks is what counts
            with self.plain():
                return original(*_plain(args), **_plain(kwargs))
        given = inspect.signature(original).bind(*args, **kwargs)
        given.apply_defaults()
        answer = getattr(self, f"_{name}", None)
        if answer is not None:
            return answer(**given.arguments)
        if name in _MAKE_GROUPS:
            return self._made(original, args, kwargs)
        self._note_peers(given.arguments)
        with self.plain():
            return original(*self.sounding.plainly(args), **self.sounding.plainly(kwargs))

    def _get_rank(self, group: Any = None) -> Any:
        if c10d.GroupMember.NON_GROUP_MEMBER is group or group == c10d.GroupMember.NON_GROUP_MEMBER:
            return _originals["get_rank"](group)
        members = self.of_group(group)
        return self.number(lambda rank: _place(members(rank), rank))

    def _get_process_group_ranks(self, group: Any) -> Any:
        members = self.of_group(group)
        count = len(members(self.sounding.me))

        def member(at: int) -> Any:
            return self.number(lambda rank: members(rank)[at])

        return [member(at) for at in range(count)]

    def _get_group_rank(self, group: Any, global_rank: Any) -> Any:
        members = self.of_group(group)
        return self.sounding.mapped(lambda rank, asked: members(rank).index(asked), self._own(), global_rank)

    def _get_global_rank(self, group: Any, group_rank: Any) -> Any:
        members = self.of_group(group)
        return self.sounding.mapped(lambda rank, asked: members(rank)[asked], self._own(), group_rank)

    def _own(self) -> Any:
        return self.number(lambda rank: rank)

    def _new_group(self, ranks: Any = None, **rest: Any) -> Any:
        if ranks is not None:
            ranks = list(ranks)
            each = {rank: tuple(_on(one, rank) for one in ranks) for rank in self.sounding.alike}
            self.sounding.keep({rank: rank in members for rank, members in each.items()})
        with self.plain():
            group = _originals["new_group"](_plain(ranks), **rest)
        name = getattr(group, "group_name", None)
        if ranks is not None and name is not None:
            self.members[name] = lambda rank: tuple(sorted(each[rank]) if rest.get("sort_ranks", True) else each[rank])
        return group

    def _made(self, original: Any, args: Any, kwargs: Any) -> Any:
        """Groups are made in some other way: what this rank's is says nothing of others but its members."""
        with self.plain():
            result = original(*_settled(args), **_settled(kwargs))
        group = result[0] if isinstance(result, tuple) else result  # its own, and then those of all
        if isinstance(group, dist.ProcessGroup):
            self.of_group(group)
        else:
            self.sounding.alone()
        return result

    def _note_peers(self, arguments: dict[str, Any]) -> None:
        """Ranks are alike if they are the root, or not."""
        for name in _PEERS:
            peer = arguments.get(name)
            if peer is None:
                continue
            members = self.of_group(arguments.get("group")) if name.startswith("group_") else None
            self.sounding.keep(
                {
                    rank: rank == (_on(peer, rank) if members is None else members(rank)[_on(peer, rank)])
                    for rank in self.sounding.alike
                }
            )

    def _functions(self) -> None:
        setattr(c10d, _HOOK, self.call)
        for name in (
            *_COLLECTIVES,
            *_MAKE_GROUPS,
            "new_group",
            "get_rank",
            "get_group_rank",
            "get_global_rank",
            "get_process_group_ranks",
        ):
            function = getattr(c10d, name, None)
            if function is None:
                continue
            inner = inspect.unwrap(function)
            if not isinstance(inner, FunctionType) or inner.__closure__ or inner.__globals__ is not vars(c10d):
                continue
            _originals[name] = _copied(inner)
            code = compile(f"def {name}(*args, **kwargs): return {_HOOK}({name!r}, args, kwargs)", __file__, "exec")
            inner.__code__ = next(each for each in code.co_consts if hasattr(each, "co_code"))
            inner.__defaults__ = inner.__kwdefaults__ = None
        group_type: Any = dist.ProcessGroup
        rank_of = group_type.rank

        def rank(group: Any) -> Any:
            if self.sounding.depth or _is_ours(sys._getframe(1).f_code.co_filename):  # noqa: SLF001 - who asks is what counts
                return rank_of(group)
            return self._get_rank(group)

        group_type.rank = rank
        backend: Any = Backend
        rank_in = backend.rank

        def rank_of_backend(this: Any) -> Any:
            if not self.sounding.depth:
                self.sounding.alone()
            return rank_in(this)

        backend.rank = rank_of_backend
        made = c10d.P2POp.__init__

        def init(
            this: Any, op: Any, tensor: Any, peer: Any = None, group: Any = None, tag: Any = 0, group_peer: Any = None
        ) -> None:
            self._note_peers({"dst": peer, "group_dst": group_peer, "group": group})
            with self.plain():
                made(
                    this,
                    op,
                    tensor,
                    *map(self.sounding.literal, (peer,)),
                    group,
                    tag,
                    *map(self.sounding.literal, (group_peer,)),
                )

        c10d.P2POp.__init__ = init

    # -- meshes --------------------------------------------------------------------------------------------------------
    def siblings(self, mesh: Any) -> dict[int, tuple[tuple[int, ...], Any]]:
        """For every rank that has such a mesh: its place in it, and the ranks in it."""
        known = self._siblings.get(id(mesh))
        if known is None:
            with _disable_current_modes():
                whole = mesh._layout.remap_to_tensor(mesh._rank_map)  # noqa: SLF001 - the only place that has them
                whole = whole.reshape(-1, *mesh._layout.top_level_sizes)  # noqa: SLF001
                places: dict[int, tuple[tuple[int, ...], Any]] = {}
                for one in whole:
                    for place in _places(tuple(one.shape)):
                        places[int(one[place])] = place, one
            known = self._siblings[id(mesh)] = mesh, places
        return known[1]

    def _meshes(self) -> None:
        for name, member in list(vars(device_mesh.DeviceMesh).items()):
            if isinstance(member, FunctionType) and name not in (
                "__eq__",
                "__hash__",
                "__repr__",
                "__enter__",
                "__exit__",
            ):
                setattr(device_mesh.DeviceMesh, name, self._of_mesh(name, member))
        whole = device_mesh.DeviceMesh.mesh

        def mesh(this: Any) -> Any:
            if not self.sounding.depth and not _is_ours(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
                found = self.siblings(this)
                mine = found[self.sounding.me][1] if self.sounding.me in found else None
                self.sounding.keep(
                    {rank: found.get(rank, (None, None))[1] is mine for rank in self.sounding.alike},
                    self.sounding.unfollowed,
                )
            with self.plain():
                return whole.fget(this)

        device_mesh.DeviceMesh.mesh = property(mesh)
        for name in ("init_device_mesh",):
            original = getattr(device_mesh, name)
            for module in (device_mesh, dist):
                setattr(module, name, self._plainly(original))

    def _of_mesh(self, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def method(mesh: Any, *args: Any, **kwargs: Any) -> Any:
            asks = name in _MESHES and not self.sounding.depth and not _is_ours(sys._getframe(1).f_code.co_filename)  # noqa: SLF001
            with self.plain():
                result = original(mesh, *_settled(args), **_settled(kwargs))
            if name == "get_group":
                self._note_group(mesh, result, *args, **kwargs)
            elif name == "get_all_groups":
                for dim, group in enumerate(result):
                    self._note_group(mesh, group, dim)
            return self._of_ranks(mesh, name, result, *args, **kwargs) if asks else result

        return method

    def _of_ranks(self, mesh: Any, name: str, result: Any, *args: Any, **kwargs: Any) -> Any:
        found = self.siblings(mesh)
        self.sounding.keep({rank: rank in found for rank in self.sounding.alike})
        if result is None:
            return None
        if name == "get_rank":
            return self._own()
        if name == "get_coordinate":
            return type(result)(self._coordinate(found, at) for at in range(len(result)))
        dim = args[0] if args else next(iter(kwargs.values()), None)
        at = self._dim(mesh, dim)
        return self._coordinate(found, at)

    def _coordinate(self, found: dict[int, tuple[tuple[int, ...], Any]], at: int) -> Any:
        return self.number(lambda rank: found[rank][0][at])

    def _dim(self, mesh: Any, dim: Any) -> int:
        if dim is None:
            return 0
        if isinstance(dim, str):
            return int(mesh.mesh_dim_names.index(dim)) if dim in mesh.mesh_dim_names else 0
        return int(dim)

    def _note_group(self, mesh: Any, group: Any, mesh_dim: Any = None) -> None:
        if isinstance(mesh_dim, str) and mesh_dim not in (mesh.mesh_dim_names or ()):
            return  # of a flattened mesh: known by its own
        found, dim = self.siblings(mesh), self._dim(mesh, mesh_dim)

        def members(rank: int) -> tuple[int, ...]:
            place, whole = found[rank]
            with _disable_current_modes():
                return tuple(map(int, whole[(*place[:dim], slice(None), *place[dim + 1 :])]))

        mine = self.sounding.me
        if mine in found and members(mine) == tuple(_original(c10d.get_process_group_ranks)(group)):
            self.members.setdefault(group.group_name, functools.cache(members))

    def _plainly(self, original: Any) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.plain():
                return original(*_settled(args), **_settled(kwargs))

        return call

    # -- the environment -----------------------------------------------------------------------------------------------
    def _environment(self) -> None:
        variables: Any = type(os.environ)
        usual = variables.__getitem__

        def read(this: Any, name: str) -> Any:
            if name in _VARIABLES and not self.sounding.depth and _is_program(sys._getframe(1)):  # noqa: SLF001 - who asks is what counts
                self.sounding.alone()
            return usual(this, name)

        variables.__getitem__ = read

    # -- what is read of tensors ---------------------------------------------------------------------------------------
    def _constants(self, following: Following) -> None:
        """Elements that are known, and depend on such numbers, are read: nobody knows what they are on other ranks.

        What is worked out of them depends on them as well.
        """
        tainted, working, computing = following.tainted, [0], [False]
        module: Any = values_module
        constants, values = constants_module.Constants, module.Values
        real, result = constants.real, values.result

        def at_work(original: Any) -> Any:
            def work(*args: Any, **kwargs: Any) -> Any:
                working[0] += 1
                try:
                    return original(*args, **kwargs)
                finally:
                    working[0] -= 1

            return work

        def is_tainted(value: Any) -> bool:
            return any(storage_of(one) in tainted for one in tensors_in(value) if isinstance(one, FakeTensor))

        def set_(original: Any) -> Any:
            def set_known(this: Any, tensor: Any, value: Any) -> None:
                if following.in_numbers or computing[0]:
                    tainted.add(storage_of(tensor))
                original(this, tensor, value)

            return set_known

        def compute_(original: Any) -> Any:
            def compute(this: Any, func: Any, args: Any, kwargs: Any, *rest: Any) -> None:
                before, computing[0] = computing[0], computing[0] or is_tainted((args, kwargs))
                if computing[0]:
                    changed = (args, kwargs) if func._schema.is_mutable else ()  # noqa: SLF001 - as its kind is told
                    tainted.update(
                        storage_of(one) for one in tensors_in((rest, changed)) if isinstance(one, FakeTensor)
                    )
                try:
                    original(this, func, args, kwargs, *rest)
                finally:
                    computing[0] = before

            return compute

        def real_(this: Any, tensor: Any, *, other: bool = False) -> Any:
            if not working[0]:
                following.read([tensor])
            return real(this, tensor, other=other)

        def result_(this: Any, func: Any, args: Any, kwargs: Any) -> Any:
            following.read((args, kwargs))
            return result(this, func, args, kwargs)

        replaced = (
            (constants, "set", set_(at_work(constants.set))),
            (constants, "differently", at_work(constants.differently)),
            (constants, "real", real_),
            (values, "_run", at_work(values._run)),  # noqa: SLF001 - where it is worked out what is known
            (values, "_compute", compute_(values._compute)),  # noqa: SLF001
            (values, "result", result_),
            (module, "communicate", at_work(module.communicate)),
        )
        for owner, name, replacement in replaced:
            setattr(owner, name, replacement)


_originals: dict[str, Any] = {}


def _original(function: Any) -> Any:
    return _originals.get(function.__name__, function)


def _copied(function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _taken(following: Following, number: Number, frame: Any) -> bool:
    elements = container(frame, following.results)
    if elements is None or not taken(number, elements):
        return False
    following.taint(elements)  # other ranks read others of them
    return True


def _is_ours(file: str) -> bool:
    """Whether the recorder asks, and not what it records."""
    return file.startswith(_HERE) and not file.startswith(_NOT_OURS)


def _is_program(frame: FrameType | None) -> bool:
    """Whether a program asks for a variable, by way of the standard library or not: PyTorch, which looks for its own settings, does so by a name of its own where it asks for others."""
    while frame is not None:
        file = frame.f_code.co_filename
        if frame.f_code.co_name == _ASKS:
            return True
        if not is_standard(file) and not file.startswith("<frozen"):
            return not is_torch(file) and not _is_ours(file)
        frame = frame.f_back
    return False


def _place(members: Sequence[int], rank: int) -> int:
    return members.index(rank) if rank in members else -1


def _on(value: Any, rank: int) -> Any:
    return value.values[rank] if type(value) is Number else value


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is Number:
        return value.mine
    if kind is tuple or kind is list:
        return kind(map(_plain, value))
    if kind is dict:
        return {key: _plain(one) for key, one in value.items()}
    return value


def _settled(value: Any) -> Any:
    return calls.settled(value)


def _places(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not shape:
        yield ()
        return
    for first in range(shape[0]):
        for rest in _places(shape[1:]):
            yield first, *rest
