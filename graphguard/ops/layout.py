"""Operators that move elements, and such that make tensors of none."""

from __future__ import annotations

from functools import partial
from typing import Final

from graphguard.ops.spec import Family, Traits

_Like: Final = partial(Traits, like=True)

MOVES: Final[Family] = {
    "alias detach clone contiguous lift lift_fresh lift_fresh_copy positive resolve_conj resolve_neg": Traits(
        moves="same"
    ),
    "alias_copy detach_copy pin_memory _c10d_functional:wait_tensor.default": Traits(moves="same"),
    "view _unsafe_view reshape _reshape_alias _reshape_copy view_copy": Traits(moves="view", shape_at=1),
    "view_as reshape_as flatten.using_ints unflatten.int ravel atleast_1d atleast_2d": Traits(moves="view"),
    "squeeze.default squeeze_copy.default": Traits(moves="view"),
    "squeeze.dim,dims squeeze_copy.dim unsqueeze unsqueeze_copy": Traits(moves="view", dim_at=1),
    "permute permute_copy t t_copy numpy_T mT transpose.int transpose_copy.int swapaxes swapdims": Traits(
        moves="permute"
    ),
    "movedim.intlist,int moveaxis.intlist,int": Traits(moves="permute"),
    "expand expand_copy broadcast_to": Traits(moves="expand", shape_at=1),
    "expand_as broadcast_tensors": Traits(moves="expand"),
    "slice.Tensor slice_copy.Tensor": Traits(moves="part", along=True, dim_at=1),
    "select.int select_copy.int narrow narrow_copy": Traits(moves="part", dim_at=1),
    "split.Tensor,sizes split_copy.Tensor unsafe_split.Tensor chunk tensor_split.sections": Traits(
        moves="split", dim_at=2
    ),
    "split_with_sizes split_with_sizes_copy unsafe_split_with_sizes": Traits(moves="split", dim_at=2),
    "unbind.int unbind_copy.int": Traits(moves="split", dim_at=1),
    "cat concat concatenate stack": Traits(moves="join", dim_at=1),
    "flip": Traits(moves="turn", along=True, dim_at=1),
    "roll": Traits(moves="turn"),
    "repeat tile repeat_interleave.self_int,Tensor,self_Tensor": Traits(moves="repeat"),
    "constant_pad_nd": Traits(moves="pad", number_at=2),
    "pad": Traits(moves="pad"),
    "slice_scatter select_scatter": Traits(moves="scatter", stores=True),
    "as_strided_scatter diagonal_scatter slice_backward select_backward": Traits(moves="scatter"),
    "as_strided as_strided_copy": Traits(moves="stride"),
    "view_as_real view_as_complex": Traits(),  # a complex number is two reals
}
PATTERNS: Final[Family] = {
    "diagonal diagonal_copy diagonal_backward diag_embed tril triu": Traits(moves="pattern"),
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle meshgrid.default,indexing": Traits(
        moves="pattern"
    ),
    "block_diag rot90 unfold unfold_copy": Traits(moves="pattern"),
    "reflection_pad1d reflection_pad2d reflection_pad3d": Traits(moves="pattern"),
    "replication_pad1d replication_pad2d replication_pad3d": Traits(moves="pattern"),
    # Gradients of the above, which add up what was read several times.
    """
    unfold_backward reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward
    """: Traits(),
}
CREATION: Final[Family] = {
    "empty.memory_format": Traits(makes="empty", shape_at=0),
    "new_empty": Traits(makes="empty", shape_at=1),
    "empty_like empty_strided empty_permuted new_empty_strided": Traits(makes="empty"),
    "zeros": Traits(makes="zeros", shape_at=0),
    "new_zeros": Traits(makes="zeros", shape_at=1),
    "zeros_like zero": _Like(makes="zeros"),
    "_efficientzerotensor": Traits(makes="zeros"),
    "ones": Traits(makes="ones", shape_at=0),
    "new_ones": Traits(makes="ones", shape_at=1),
    "ones_like": _Like(makes="ones"),
    "full": Traits(makes="full", shape_at=0, number_at=1),
    "new_full": Traits(makes="full", shape_at=1, number_at=2),
    "full_like fill.Scalar": _Like(makes="full"),
    "fill.Tensor": _Like(),
    "scalar_tensor": Traits(makes="full"),
    "copy": Traits(stores=True),
    "arange.start_step,start,default": Traits(makes="range"),
    "linspace": Traits(),
    "eye.default,m": Traits(makes="identity"),
    "tril_indices triu_indices": Traits(makes="places"),
}
RANDOM: Final[Family] = {
    "rand.default,generator randn.default,generator": Traits(makes="random", shape_at=0),
    "rand_like randn_like randint_like.low_dtype uniform normal_functional exponential": Traits(makes="random"),
    "normal.float_float randint.low,low_generator,default,generator randperm.default,generator": Traits(makes="random"),
    "bernoulli.p,float,default,Tensor": Traits(makes="random"),
    "native_dropout dropout peer:dropout": Traits(),
}
FAMILIES: Final = (MOVES, PATTERNS, CREATION, RANDOM)
