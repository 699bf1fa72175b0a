"""Tables of a specification from outside the recording, which a rank that computed the same bits has too: its own are none of them."""

from types import SimpleNamespace

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from graphguard.trace.claims.loading import _keep_tables


class Kept:
    """Takes the place of a recording, and notes what would be bound."""

    def __init__(self):
        self.bound = []

    def bind_if_equal(self, tensor, outside):
        self.bound.append((tensor, outside))


def module(table):
    made = nn.Module()
    made.register_buffer("table", table, persistent=False)
    return made


def distributed(local):
    """As a DTensor shows itself: a tensor whose elements are those of another one."""
    shown = torch.empty(3)
    shown._local_tensor = local
    return shown


def kept(spec, impl):
    recording = Kept()
    _keep_tables(recording, SimpleNamespace(spec=spec, impl=impl))
    return recording.bound


def test_a_rank_s_own_table_is_not_from_outside():
    with FakeTensorMode():
        local = torch.empty(3)
    own = module(distributed(local))
    assert kept(own, own) == []


def test_a_table_that_was_computed_before_is():
    with FakeTensorMode():
        local = torch.empty(3)
    before = torch.ones(3)
    for outside in (before, distributed(before)):
        own = module(distributed(local))
        ((tensor, found),) = kept(module(outside), own)
        assert tensor is own.table
        assert found is before
