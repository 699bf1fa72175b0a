"""Lines up the collectives of all ranks: one order in which the whole job can run, or why it hangs.

A rank stands still at a collective until every member of the group has come to its own call, and at a send or receive that it waits for at once
(``blocking``) until the other side is there.  Any other send is buffered, and any other receive, or collective that is ``asynchronous``, holds back only what reads its result,
because programs post them long before they wait.  When all ranks have ended, no message may be left: who waits for such a send, and NCCL at the next synchronisation, waits for ever.  Every communicator has an order of its own: the calls on one meet in the order in which each rank makes them.

What only holds ranks up is no part of a graph (see :mod:`graphguard.trace.graph.meetings`), and may stand among its nodes here: ``gg.new_group(among, group)`` and ``gg.split_group``, at which the
members meet, and ``gg.wait(*results)``, which waits for what is asynchronous.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from typing import TypeAlias

from graphguard.ir.capture import Trouble
from graphguard.ir.graph import ASYNCHRONOUS, COLLECTIVES, COMMUNICATOR, Arg, Graph, Node, TensorType, Var
from graphguard.ir.ranks import ranks_text
from graphguard.ir.spans import Span
from graphguard.ops import COLLECTIVE, EXCHANGES, MESSAGES, gg

RULE = "collective-mismatch"
WAIT = "gg.wait"
_FORMING = frozenset(("gg.new_group", "gg.split_group"))
_MEETING = (COLLECTIVES - MESSAGES) | _FORMING
_STOPS = COLLECTIVES | _FORMING | {WAIT}


@dataclass(frozen=True, slots=True)
class JoinedCall:
    """One collective of the whole job: its calls by rank, as indices into each rank's nodes.

    ``kind`` is the operator; a send and its receive are one call of kind ``gg.send`` whose ``group`` is (source, destination).
    """

    kind: str
    group: tuple[int, ...]
    nodes: dict[int, int]


Communicator: TypeAlias = tuple[tuple[int, ...], int]
"""The ranks of a group, in order, and which of the groups of these ranks it is, counted from one."""
_Channel: TypeAlias = tuple[
    int, int, int, Communicator
]  # source, destination, tag, group: messages on it keep their order
Step: TypeAlias = tuple[int, int] | JoinedCall


@dataclass(frozen=True, slots=True)
class Joined:
    """The ranks in lockstep: every node (rank, index) once, collectives once for all their members.

    In ``order`` everything comes after what it reads.  Where ``mismatches`` is not empty, the job hangs or fails there and ``order`` ends early.
    """

    collectives: tuple[JoinedCall, ...]
    order: tuple[Step, ...]
    mismatches: tuple[Trouble, ...]


def join(ranks: tuple[Graph, ...]) -> Joined:
    """Run the ranks' control flow together, without values; never raises for a program that hangs."""
    return _Run(ranks).finish()


def communicator_of(node: Node) -> Communicator:
    """The group that a collective is called on."""
    number = node.kwargs.get(COMMUNICATOR, 1)
    assert isinstance(number, int)
    return group_of(node), number


def group_of(node: Node) -> tuple[int, ...]:
    """The global ranks that take part in a collective, in group order."""
    group = node.args[-1]
    assert isinstance(group, tuple)
    return _ranks_in(group)


@lru_cache
def _ranks_in(group: tuple[Arg, ...]) -> tuple[int, ...]:
    return tuple(member for member in group if isinstance(member, int))


@lru_cache
def _count(group: tuple[int, ...]) -> int:
    return len(set(group))


@dataclass(slots=True)
class _Rank:
    """Where one rank stands: the next node to look at, nodes held back, variables that are still to be received, collectives that others have not come to."""

    graph: Graph
    next: int = 0
    held: list[int] = field(default_factory=list)
    missing: set[Var] = field(default_factory=set)
    issued: dict[Communicator, deque[int]] = field(default_factory=dict)
    blocked: int | None = None
    standing: int | None = None

    @property
    def stop(self) -> int | None:
        """The call that it stands at or has not got past, if any: the first that has all that it reads, as another waits for that one."""
        here = self.blocked if self.standing is None else self.standing
        if here is not None and not self.lacks(here):
            return here
        first = (calls[0] for calls in self.issued.values() if calls)
        return min((index for index in first if not self.lacks(index)), default=here)

    def lacks(self, index: int) -> bool:
        """Whether a call reads what is still to come."""
        return bool(self.missing) and not self.missing.isdisjoint(self.graph.nodes[index].operands())


class _Run:
    def __init__(self, ranks: tuple[Graph, ...]) -> None:
        self.ranks = [_Rank(graph) for graph in ranks]
        self.stops = [[index for index, node in enumerate(graph.nodes) if node.op in _STOPS][::-1] for graph in ranks]
        self.order: list[Step] = []
        self.calls: list[JoinedCall] = []
        self.troubles: list[Trouble] = []
        self.mail: dict[_Channel, deque[int]] = {}
        self.awaited: dict[_Channel, deque[int]] = {}
        self.come: Counter[Communicator] = Counter()  # members that have come to a call

    def finish(self) -> Joined:
        todo = deque(range(len(self.ranks)))
        while todo and not self.troubles:
            rank = todo.popleft()
            todo.extend(self._advance(rank))
        if not self.troubles:
            self._explain_hang()
        return Joined(tuple(self.calls), tuple(self.order), tuple(self.troubles))

    # -- one rank ------------------------------------------------------------------------------------------------------
    def _advance(self, rank: int) -> set[int]:
        """Run a rank until it stands; the result is every rank that can go on because of it."""
        state, woken = self.ranks[rank], set()
        nodes = state.graph.nodes
        while state.blocked is None and state.standing is None and state.next < len(nodes):
            if not state.missing:
                self._run_on(rank)
                if state.next == len(nodes):
                    break
            index = state.next
            node = nodes[index]
            held = state.lacks(index) or self._is_behind(rank, node)
            if held and (is_blocking(node) or node.op == WAIT):
                break
            state.next += 1
            if node.op in _MEETING:
                woken |= self._call(rank, index)
            elif held:
                state.held.append(index)
                state.missing.update(node.outs)
            else:
                woken |= self._execute(rank, index)
        for communicator in [which for which, calls in state.issued.items() if calls]:
            woken |= self._meet(rank, communicator)
        return woken

    def _call(self, rank: int, index: int) -> set[int]:
        """A rank comes to a collective, which is next on its communicator."""
        state = self.ranks[rank]
        node = state.graph.nodes[index]
        communicator = communicator_of(node)
        calls = state.issued.setdefault(communicator, deque())
        self.come[communicator] += not calls
        calls.append(index)
        if node.kwargs.get(ASYNCHRONOUS) is not True:
            state.blocked = index
            return set()
        state.missing.update(node.outs)
        return self._meet(rank, communicator)

    def _run_on(self, rank: int) -> None:
        """Everything up to the next collective, where nothing is waited for."""
        state = self.ranks[rank]
        stops = self.stops[rank]
        while stops and stops[-1] < state.next:
            stops.pop()
        end = stops[-1] if stops else len(state.graph.nodes)
        self.order.extend(zip(repeat(rank), range(state.next, end)))
        state.next = end

    def _is_behind(self, rank: int, node: Node) -> bool:
        """Messages of one rank to another do not overtake each other: whether an earlier one is held back."""
        state = self.ranks[rank]
        if node.op != gg.send or not state.held:
            return False
        earlier = (state.graph.nodes[index] for index in state.held)
        where = (node.args[1:], communicator_of(node))
        return any(other.op == gg.send and (other.args[1:], communicator_of(other)) == where for other in earlier)

    def _execute(self, rank: int, index: int) -> set[int]:
        node = self.ranks[rank].graph.nodes[index]
        if node.op == gg.send:
            return self._send(rank, index, node)
        if node.op == gg.recv:
            return self._receive(rank, index, node)
        self.order.append((rank, index))
        return set()

    # -- point to point ------------------------------------------------------------------------------------------------
    def _send(self, rank: int, index: int, node: Node) -> set[int]:
        key = (rank, _whole(node.args[1]), _whole(node.args[2]), communicator_of(node))
        waiting = self.awaited.get(key)
        if not waiting:
            self.mail.setdefault(key, deque()).append(index)
            if is_blocking(node) and index + 1 == self.ranks[rank].next:
                self.ranks[rank].standing = index
            return set()
        receiver = waiting.popleft()
        if not self._paired(key, index, receiver):
            return set()
        return self._release(key[1], receiver)

    def _receive(self, rank: int, index: int, node: Node) -> set[int]:
        key = (_whole(node.args[0]), rank, _whole(node.args[1]), communicator_of(node))
        sent = self.mail.get(key)
        if sent:
            sender = sent.popleft()
            self._paired(key, sender, index)
            if self.ranks[key[0]].standing == sender:
                self.ranks[key[0]].standing = None
                return {key[0]}
            return set()
        self.awaited.setdefault(key, deque()).append(index)
        self.ranks[rank].missing.update(node.outs)
        if is_blocking(node):
            self.ranks[rank].standing = index
        return set()

    def _paired(self, key: _Channel, sent: int, received: int) -> bool:
        source, destination, *_ = key
        sender, receiver = self.ranks[source].graph, self.ranks[destination].graph
        payload = sender.types[next(sender.nodes[sent].operands())]
        expected = receiver.types[receiver.nodes[received].outs[0]]
        if not _agree(payload, expected):
            message = (
                f"rank {source} sends {_shown(payload)} and rank {destination} receives {_shown(expected)}\n"
                "needed: the same shape and dtype on both sides"
            )
            self._report(message, (source, sent), (destination, received))
            return False
        call = JoinedCall(gg.send, (source, destination), {source: sent, destination: received})
        self.calls.append(call)
        self.order.append(call)
        return True

    def _release(self, rank: int, received: int) -> set[int]:
        """A receive of ``rank``, or an asynchronous collective, has its value: run what was held back for it, in program order."""
        state, woken = self.ranks[rank], {rank}
        if state.standing == received:
            state.standing = None
        state.missing.difference_update(state.graph.nodes[received].outs)
        held, state.held = state.held, []
        for position, index in enumerate(held):
            node = state.graph.nodes[index]
            if state.lacks(index) or self._is_behind(rank, node):
                state.held.append(index)
                continue
            state.missing.difference_update(node.outs)
            before = len(self.troubles)
            woken |= self._execute(rank, index)
            if len(self.troubles) > before:
                state.held.extend(held[position + 1 :])
                break
        return woken

    # -- collectives ---------------------------------------------------------------------------------------------------
    def _meet(self, rank: int, communicator: Communicator) -> set[int]:
        """Make one call of each that all members have come to; they can go on."""
        group, woken = communicator[0], set[int]()
        if rank not in group:
            index = self.ranks[rank].issued[communicator][0]
            op = _plain(self.ranks[rank].graph.nodes[index].op)
            self._report(f"rank {rank} calls {op} on a group of {ranks_text(group)}, which it is not in", (rank, index))
            return woken
        while (calls := self._there(communicator)) and self._compatible(calls):
            call = JoinedCall(self.ranks[rank].graph.nodes[calls[rank]].op, group, calls)
            self.calls.append(call)
            self.order.append(call)
            for member, index in calls.items():
                issued = self.ranks[member].issued[communicator]
                issued.popleft()
                self.come[communicator] -= not issued
                woken |= self._past(member, index)
        return woken

    def _there(self, communicator: Communicator) -> dict[int, int]:
        """The next call of every member on a communicator; empty where not all have come to one that has all that it reads."""
        calls: dict[int, int] = {}
        if self.come[communicator] < _count(communicator[0]):
            return calls
        for member in communicator[0]:
            state = self.ranks[member]
            index = state.issued[communicator][0]
            if state.lacks(index):
                return {}
            calls[member] = index
        return calls

    def _past(self, rank: int, index: int) -> set[int]:
        """A collective is done: a rank that stands there goes on."""
        if self.ranks[rank].blocked != index:
            return self._release(rank, index)
        self.ranks[rank].blocked = None
        return {rank}

    def _compatible(self, calls: dict[int, int]) -> bool:
        members = list(calls)
        first = members[0]
        one = self.ranks[first].graph.nodes[calls[first]]
        for member in members[1:]:
            other = self.ranks[member].graph.nodes[calls[member]]
            if one.op != other.op:
                message = (
                    f"rank {first} calls {_plain(one.op)} where rank {member} calls {_plain(other.op)}\n"
                    f"needed: all of {ranks_text(group_of(one))} call the same collectives in the same order"
                )
                return self._report(message, (first, calls[first]), (member, calls[member]))
            if _attributes(one) != _attributes(other):
                if one.op in _FORMING:
                    return self._apart(one, calls[first], (first, member), other, calls[member])
                message = (
                    f"{_plain(one.op)} is called with {_described(one)} on rank {first} and with {_described(other)} on rank {member}\n"
                    "needed: the same reduction and the same root on every rank"
                )
                return self._report(message, (first, calls[first]), (member, calls[member]))
        return self._same_shapes(one.op, calls)

    def _apart(self, one: Node, index: int, ranks: tuple[int, int], other: Node, at: int) -> bool:
        """Ranks that make a group together and give it different names."""
        a, b = ranks
        message = (
            f"rank {a} calls {_plain(one.op)} over {ranks_text(group_of(one))} as a member of {one.args[0]} and rank {b} as one of {other.args[0]}: they never meet\n"
            "found: with use_local_synchronization PyTorch tells groups by their ranks and by the number of groups that the caller is in\n"
            "needed: the members are in as many other groups, or every rank calls new_group without use_local_synchronization"
        )
        return self._report(message, (a, index), (b, at))

    def _same_shapes(self, op: str, calls: dict[int, int]) -> bool:
        if op in _FORMING or len(self._types(calls)) == 1:
            return True
        members = list(calls)
        for i, a in enumerate(members):
            for j, b in enumerate(members[i + 1 :], start=i + 1):
                for mine, theirs in self._compared(op, calls, (i, a), (j, b)):
                    if not _agree(mine, theirs, shapes=op != gg.gather):
                        message = (
                            f"{_plain(op)} is called on {_shown(mine)} by rank {a} and on {_shown(theirs)} by rank {b}\n"
                            "needed: shapes and dtypes that fit together on every rank"
                        )
                        return self._report(message, (a, calls[a]), (b, calls[b]))
            if COLLECTIVE[op].alike:
                break  # equal to the first is equal to each other
        return True

    def _types(self, calls: dict[int, int]) -> set[TensorType]:
        """All types that the members read and get."""
        found = set()
        for rank, index in calls.items():
            graph = self.ranks[rank].graph
            node = graph.nodes[index]
            found.update([graph.types[var] for var in (*node.operands(), *node.outs)])
        return found

    def _compared(
        self, op: str, calls: dict[int, int], a: tuple[int, int], b: tuple[int, int]
    ) -> list[tuple[TensorType, TensorType]]:
        """Pairs of types that two members (position in the group, rank) must agree on."""
        graphs = [self.ranks[rank].graph for _, rank in (a, b)]
        nodes = [graph.nodes[calls[rank]] for graph, (_, rank) in zip(graphs, (a, b), strict=True)]
        reads = [[graph.types[var] for var in node.operands()] for graph, node in zip(graphs, nodes, strict=True)]
        gives = [[graph.types[var] for var in node.outs] for graph, node in zip(graphs, nodes, strict=True)]
        if op == gg.scatter:  # its root alone has operands
            return [(gives[0][0], gives[1][0])]
        if op not in EXCHANGES:
            return list(zip(reads[0], reads[1], strict=False))
        (i, _), (j, _) = a, b  # what one gets from the other has the type of what the other gives
        to_a, to_b = (COLLECTIVE[op].made(me, len(calls), 0)[other].places[0] for me, other in ((i, j), (j, i)))
        return [(reads[0][to_b.position], gives[1][i]), (gives[0][j], reads[1][to_a.position])]

    # -- hangs ---------------------------------------------------------------------------------------------------------
    def _explain_hang(self) -> None:
        for rank, state in enumerate(self.ranks):
            if state.blocked is not None and not state.lacks(state.blocked):
                return self._explain_blocked(rank, state.blocked)
        for rank, state in enumerate(self.ranks):
            if state.standing is not None:
                return self._explain_message(rank, state.standing)
        for rank, state in enumerate(self.ranks):
            if state.stop is not None and not state.lacks(state.stop):
                return self._explain_blocked(rank, state.stop)
        for (_, rank, *_), waiting in self.awaited.items():
            if waiting:
                return self._explain_message(rank, waiting[0])
        for rank, state in enumerate(self.ranks):
            index = state.held[0] if state.held else state.next
            if index < len(state.graph.nodes):
                op = _plain(state.graph.nodes[index].op)
                self._report(f"rank {rank} never gets to {op}: what it reads never comes", (rank, index))
                return None
        for (rank, peer, *_), sent in self.mail.items():
            if sent:
                message = f"rank {rank} sends to rank {peer}, which never receives it\nneeded: a receive from rank {rank} on rank {peer}"
                self._report(message, (rank, sent[0]), self._last_call(peer) if peer < len(self.ranks) else None)
                return None
        return None

    def _explain_message(self, rank: int, index: int) -> None:
        """A send or receive without its other side; the other rank may itself be waiting."""
        node = self.ranks[rank].graph.nodes[index]
        sends = node.op == gg.send
        peer = _whole(node.args[1 if sends else 0])
        other = self.ranks[peer] if peer < len(self.ranks) else None
        verb, needed = ("send to", "a receive from") if sends else ("receive from", "a send to")
        there = other.standing if other is not None and other.standing is not None else None
        if other is not None and there is None:
            there = other.blocked
        if other is None or there is None:
            message = f"rank {rank} waits for ever to {verb} rank {peer}\nneeded: {needed} rank {rank} on rank {peer}"
            self._report(message, (rank, index), self._last_call(peer) if other is not None else None)
            return
        theirs = _plain(other.graph.nodes[there].op).replace("recv", "receive")
        message = (
            f"rank {rank} waits to {verb} rank {peer} while rank {peer} waits in its own {theirs}: neither goes on\n"
            f"needed: {needed} rank {rank} on rank {peer} that it reaches first"
        )
        self._report(message, (rank, index), (peer, there))

    def _explain_blocked(self, rank: int, index: int) -> None:
        node = self.ranks[rank].graph.nodes[index]
        group = group_of(node)
        here = f"rank {rank} waits in {_plain(node.op)} over {ranks_text(group)} while rank"
        needed = f"needed: all of {ranks_text(group)} call the same collectives in the same order"
        for member in group:
            other = self.ranks[member] if member < len(self.ranks) else None
            if member == rank or other is None:
                continue
            there = other.stop
            if there is None:
                message = f"rank {rank} waits for ever in {_plain(node.op)} over {ranks_text(group)}: rank {member} never calls it\n{needed}"
                self._report(message, (rank, index), self._last_call(member))
                return
            theirs = other.graph.nodes[there]
            if theirs.op in MESSAGES:
                message = f"{here} {member} waits in its own {_plain(theirs.op)}: neither goes on\n{needed}"
            elif communicator_of(theirs) != communicator_of(node):
                where = (
                    f"another group of {ranks_text(group)}"
                    if group_of(theirs) == group
                    else ranks_text(group_of(theirs))
                )
                message = f"{here} {member} waits in {_plain(theirs.op)} over {where}: neither goes on\n{needed}"
            else:
                continue
            self._report(message, (rank, index), (member, there))
            return
        message = f"rank {rank} waits for ever in {_plain(node.op)} over {ranks_text(group)}, which not all of them reach\n{needed}"
        self._report(message, (rank, index))

    def _last_call(self, rank: int) -> tuple[int, int] | None:
        nodes = self.ranks[rank].graph.nodes
        return next(((rank, i) for i in range(len(nodes) - 1, -1, -1) if nodes[i].op in COLLECTIVES), None)

    def _report(self, message: str, first: tuple[int, int], second: tuple[int, int] | None = None) -> bool:
        rank, index = first
        graph = self.ranks[rank].graph
        related: tuple[tuple[Span, str], ...] = ()
        if second is not None:
            span = span_of(self.ranks[second[0]].graph, second[1])
            if span is not None:
                op = _plain(self.ranks[second[0]].graph.nodes[second[1]].op)
                related = ((span, f"rank {second[0]}: {op}"),)
                if span != span_of(graph, index):
                    message += "\nthe two calls stand at different places: one rank may have made one call more, or one less, before"
        stack = graph.stack_of(graph.nodes[index].stack)
        self.troubles.append(Trouble(RULE, message, span_of(graph, index), rank, stack, related))
        return False


def is_blocking(node: Node) -> bool:
    """Whether a send or receive is waited for at once."""
    return node.op in MESSAGES and node.kwargs.get("blocking") is True


def span_of(graph: Graph, index: int) -> Span | None:
    """The innermost place of a node: where it was called, or, for one without frames of its own, what it differentiates."""
    node = graph.nodes[index]
    for stack in (graph.stack_of(node.stack), graph.stack_of(node.forward)):
        if stack:
            return stack[0].span
    return None


def _agree(a: TensorType, b: TensorType, shapes: bool = True) -> bool:
    if a.dtype != b.dtype:
        return False
    if not shapes:
        return len(a.shape) == len(b.shape)
    return len(a.shape) == len(b.shape) and all(
        m == n or not (isinstance(m, int) and isinstance(n, int)) for m, n in zip(a.shape, b.shape, strict=True)
    )


def _attributes(node: Node) -> tuple[Arg, ...]:
    return tuple(arg for arg in node.args if isinstance(arg, str | int))


def _described(node: Node) -> str:
    return ", ".join(f"rank {arg} as root" if isinstance(arg, int) else str(arg) for arg in _attributes(node))


def _whole(arg: Arg) -> int:
    assert isinstance(arg, int)
    return arg


def _plain(op: str) -> str:
    return op.removeprefix("gg.")


def _shown(kind: TensorType) -> str:
    sizes = ", ".join(str(size) if isinstance(size, int) else size.expr for size in kind.shape)
    return f"a {kind.dtype} tensor of shape ({sizes})"
