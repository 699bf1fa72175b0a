"""Functions and methods of PyTorch that change nothing but tensors, and do the same whenever they are called on tensors of the same kinds.

What stands in the tables is what PyTorch had before a program could change it (with our own replacements): a function that a program puts in its place is the program's.
Draws at random, reads of elements and what is written are not decided here: the recorder sees them.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

_OF_TORCH = (
    "abs", "add", "addmm", "amax", "amin", "argmax", "argmin", "baddbmm", "bmm", "broadcast_to", "cat", "ceil", "chunk", "clamp", "clone",
    "concat", "cos", "cumsum", "div", "einsum", "empty_like", "eq", "exp", "expm1", "flatten", "floor", "full_like", "gather", "ge", "gt",
    "index_select", "le", "log", "log1p", "log_softmax", "logsumexp", "lt", "masked_fill", "matmul", "maximum", "mean", "minimum", "mm", "mul",
    "narrow", "ne", "neg", "norm", "ones_like", "outer", "permute", "pow", "prod", "reciprocal", "relu", "repeat_interleave", "reshape",
    "rms_norm", "rsqrt", "select", "sigmoid", "sign", "sin", "softmax", "split", "sqrt", "square", "squeeze", "stack", "sub", "sum", "t",
    "tanh", "topk", "transpose", "tril", "triu", "unbind", "unsqueeze", "var", "where", "zeros_like", "layer_norm",
)  # fmt: skip
_OF_NN = (
    "cross_entropy", "dropout", "elu", "embedding", "gelu", "glu", "hardtanh", "layer_norm", "leaky_relu", "linear", "log_softmax", "mish",
    "mse_loss", "normalize", "pad", "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu", "silu", "softmax", "softplus", "tanh",
)  # fmt: skip
_OF_DISTRIBUTED = (
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "broadcast", "get_rank", "get_world_size", "reduce_scatter",
    "reduce_scatter_tensor",
)  # fmt: skip
_METHODS = (
    "abs", "add", "add_", "addmm", "amax", "amin", "argmax", "argmin", "baddbmm", "bfloat16", "bmm", "bool", "ceil", "chunk", "clamp",
    "clamp_", "clamp_min", "clone", "contiguous", "copy_", "cos", "cumsum", "detach", "dim", "div", "div_", "double", "eq", "exp", "exp_",
    "expand", "expand_as", "fill_", "flatten", "flip", "float", "floor", "gather", "ge", "gt", "half", "index_select", "int", "is_contiguous",
    "is_floating_point", "le", "log", "log_softmax", "logsumexp", "long", "lt", "masked_fill", "masked_fill_", "matmul", "max", "maximum",
    "mean", "min", "minimum", "mm", "mul", "mul_", "narrow", "ne", "neg", "neg_", "new_empty", "new_full", "new_ones", "new_zeros", "norm",
    "numel", "permute", "pow", "prod", "reciprocal", "relu", "relu_", "repeat", "repeat_interleave", "reshape", "reshape_as", "roll", "rsqrt",
    "select", "sigmoid", "sign", "sin", "size", "softmax", "split", "sqrt", "square", "squeeze", "stride", "sub", "sub_", "sum", "swapaxes",
    "t", "tanh", "tile", "to", "topk", "transpose", "tril", "triu", "type_as", "unbind", "unflatten", "unsqueeze", "var", "view", "view_as",
    "where", "zero_",
)  # fmt: skip
_OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"]
_DUNDERS = [
    *(f"__{place}{name}__" for name in _OPERATORS for place in ("", "r", "i")),
    *(f"__{name}__" for name in ["eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "getitem", "setitem"]),
]
_PROPERTIES = ["T", "device", "dtype", "is_cuda", "mT", "ndim", "requires_grad", "shape"]

_OF_MODULES = ("__getattr__", "__getattribute__", "_call_impl", "_wrapped_call_impl")

identity = object.__hash__
"""What ``id`` gives in another order, without the audit event that costs more than what it is asked for."""
_ABSENT: Final = object()
METHODS: Final[dict[str, Any]] = {}
PROPERTIES: Final[dict[str, Any]] = {}
FUNCTIONS: Final[dict[int, Any]] = {}
_CALLS: Final[list[Any]] = []


def note() -> None:
    """Note what PyTorch has now: before any program is imported, after our replacements."""
    for owner, names in ((torch, _OF_TORCH), (nn.functional, _OF_NN), (dist, _OF_DISTRIBUTED)):
        for name in names:
            function = getattr(owner, name)
            FUNCTIONS[identity(function)] = function
    METHODS.update({name: static(FakeTensor, name) for name in (*_METHODS, *_DUNDERS)})
    PROPERTIES.update({name: static(FakeTensor, name) for name in _PROPERTIES})
    _CALLS[:] = [
        [static(nn.Module, name) for name in _OF_MODULES],
        static(torch.autograd.Function, "apply"),
        static(torch.autograd.Function, "setup_context"),
    ]


def is_own(table: dict[int, Any], value: Any) -> bool:
    """Whether a table has this very object."""
    return identity(value) in table


def own_method(name: str) -> bool:
    """Whether tensors still have PyTorch's own method or property of this name."""
    return static(FakeTensor, name) is (METHODS[name] if name in METHODS else PROPERTIES[name])


def own_call(cls: type) -> bool:
    """Whether the modules of a class are called, and have attributes, as PyTorch's are."""
    called = static(cls, "__call__") is nn.Module.__call__  # ours, while layers may be copied
    return called and [static(cls, name) for name in _OF_MODULES] == _CALLS[0]


def own_apply(cls: type) -> bool:
    """Whether an autograd function is applied as PyTorch's are, its ``ctx`` filled by its ``forward``."""
    return static(cls, "apply") is _CALLS[1] and static(cls, "setup_context") is _CALLS[2]


def static(cls: type, name: str) -> Any:
    """What a class or its bases hold under a name, untouched; None where none does."""
    for base in cls.__mro__:
        found = base.__dict__.get(name, _ABSENT)
        if found is not _ABSENT:
            return found
    return None
