"""The graphs GraphGuard reasons about: plain, immutable data with value semantics."""

from graphguard.ir.capture import Capture, CheckRef, Leaf, Placement, Promise, Trouble
from graphguard.ir.codec import capture_from_json, capture_to_json
from graphguard.ir.graph import Constant, DType, Graph, Node, Sym, TensorType, Var
from graphguard.ir.spans import Frame, Span

__all__ = [
    "Capture",
    "CheckRef",
    "Constant",
    "DType",
    "Frame",
    "Graph",
    "Leaf",
    "Node",
    "Placement",
    "Promise",
    "Span",
    "Sym",
    "TensorType",
    "Trouble",
    "Var",
    "capture_from_json",
    "capture_to_json",
]
