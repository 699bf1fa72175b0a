"""What a project has that can be checked, read from its files alone: parallel modules, training scripts, frameworks."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FRAMEWORKS = ("megatron", "torchtitan", "transformers", "deepspeed", "accelerate", "lightning")
_SKIPPED = frozenset(
    ("node_modules", "site-packages", "dist-packages", "__pycache__", "build", "dist", "venv", "tests")
)
_FILES = 2000
_SCRIPT = re.compile(r"(pre)?train|finetune|main|^run")
_TRAINS = frozenset(("backward", "step", "Trainer", "initialize", "pretrain", "fit", "train"))
#: What stands for an argument of a constructor, by its name.
_GIVEN = (
    (r".*(group|pg)$", 'mesh.get_group("tp")'),
    (r"(device_)?mesh|tp_mesh", "mesh"),
    (r"(tp_?)?(world_size|size|degree|ranks)|num_ranks|tp|world", "mesh.size()"),
    (r"(tp_?)?(rank|local_rank)", "mesh.get_local_rank()"),
    (r"(n|num)_?\w*heads?", "4"),
    (r"\w*vocab\w*|num_embeddings", "32"),
)
_SIZE = re.compile(
    r"\w*(dim|size|features?|inputs?|outputs?|hidden|width|channels|d_model|n_embd|inner|intermediate|d_ff|ffn)\w*"
)
_IDS = re.compile(r"\w*(ids|tokens|idx|indices)\w*")
#: The width of a model of ``graphguard.frameworks.megatron.config``.
_MEGATRON_WIDTH = "16"
_SIZES = ("8", "12", "16", "20")


@dataclass(frozen=True, slots=True)
class Parallel:
    """A module whose name says that it is parallel: how it is built on a mesh and what it takes, as text; ``open`` names what nothing is known of.

    ``megatron``: it needs Megatron's groups.
    """

    file: Path
    line: int
    name: str
    module: str
    build: str
    inputs: str
    open: tuple[str, ...]
    megatron: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """The parallel modules of a project, those first of which all is known; its training scripts; the frameworks that it imports."""

    modules: tuple[Parallel, ...]
    scripts: tuple[Path, ...]
    frameworks: tuple[str, ...]


def survey(root: Path) -> Survey:
    """Look at the project's own files; those that do not parse are left out."""
    modules: list[Parallel] = []
    scripts: list[Path] = []
    imported: set[str] = set()
    for file in _files(root):
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        names = set(_imported(tree))
        imported |= names
        if "torch" in names and not _runs(tree):
            modules += _parallel(tree, file.relative_to(root), "megatron" in names)
        if names & {"torch", *FRAMEWORKS} and _SCRIPT.search(file.stem) and _trains(tree):
            scripts.append(file.relative_to(root))
    return Survey(
        tuple(sorted(modules, key=lambda one: len(one.open))),
        tuple(sorted(scripts, key=lambda one: (len(one.parts), one.stem != "train", str(one)))),
        tuple(name for name in FRAMEWORKS if name in imported),
    )


def _files(root: Path) -> Iterator[Path]:
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(files):
            seen += name.endswith(".py")
            if seen > _FILES:
                return
            if name.endswith(".py"):
                yield Path(folder) / name


def _imported(tree: ast.Module) -> Iterator[str]:
    """The outermost packages that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def _runs(tree: ast.Module) -> bool:
    """Whether importing a file does more than define things."""
    return any(
        isinstance(node, ast.For | ast.While | ast.With)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in tree.body
    )


def _trains(tree: ast.Module) -> bool:
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    guarded = any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree.body)
    return bool(called & _TRAINS) and (guarded or _runs(tree))


def _parallel(tree: ast.Module, file: Path, megatron: bool) -> Iterator[Parallel]:
    modules: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        if not (bases & modules or any(base.endswith("Module") for base in bases)):
            continue
        modules.add(node.name)
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        if "parallel" in node.name.lower() and {"__init__", "forward"} <= methods.keys():
            yield _described(node, methods["__init__"], methods["forward"], file, megatron)


def _described(
    node: ast.ClassDef, make: ast.FunctionDef, forward: ast.FunctionDef, file: Path, megatron: bool
) -> Parallel:
    words, unknown, sizes = [], [], list(_SIZES)
    width = sizes[0]
    for argument in _required(make):
        value = _value(argument, sizes)
        if megatron and argument.arg == "config":
            value, width = "megatron.config()", _MEGATRON_WIDTH
        unknown += [argument.arg] if value is None else []
        words.append(f"{argument.arg}={value or '...'}")
    names = [argument.arg for argument in _required(forward)]
    unknown += names[1:]
    looks_up = "embedding" in node.name.lower() or any(map(_IDS.fullmatch, names))
    tensor = "gg.tensor(2, 3, dtype=torch.int64, low=0, high=32)" if looks_up else f"gg.tensor(2, 3, {width})"
    parts = file.with_suffix("").parts
    module = ".".join(parts[1:] if parts[0] == "src" and len(parts) > 1 else parts)
    build = f"{node.name}({', '.join(words)})"
    return Parallel(file, node.lineno, node.name, module, build, f"({tensor},)", tuple(unknown), megatron)


def _required(function: ast.FunctionDef) -> list[ast.arg]:
    """The arguments that a call must give, without ``self``."""
    given = function.args
    placed = [*given.posonlyargs, *given.args]
    named = [one for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return [*placed[1 : len(placed) - len(given.defaults)], *named]


def _value(argument: ast.arg, sizes: list[str]) -> str | None:
    name = argument.arg.lower()
    for pattern, value in _GIVEN:
        if re.fullmatch(pattern, name):
            return value
    kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
    if kind == "bool":
        return "False"
    if kind == "int" or (not kind and _SIZE.fullmatch(name)):
        return sizes.pop(0) if len(sizes) > 1 else sizes[0]
    return None
