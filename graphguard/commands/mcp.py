"""``graphguard mcp``: a server of the Model Context Protocol on standard input and output, for agents."""

from __future__ import annotations

import argparse
import functools
import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from graphguard.commands.agent import Agent, RefusedError
from graphguard.commands.failure import CommandError

INSTRUCTIONS = """\
GraphGuard proves that a distributed PyTorch program refines its sequential specification, without a GPU.
"refines" is a proof for all values at the named shapes and mesh; read what it assumes. "broken" comes with a counterexample.
"unknown" says nothing about the program: never report it as a bug, nor as a proof. Fixes that are proposed were proved; others are yours to verify."""
# What runs code of the project or of the agent, and what only reads.
RUNNING = ("verify", "verify_pair", "relations", "propose_fixes")
READING = ("list_checks", "explain")


def run(arguments: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    agent = Agent(folder.resolve(), arguments.trust)
    try:
        server_of(agent).run("stdio")
    finally:
        agent.close()
    return 0


def server_of(agent: Agent) -> Any:
    """The SDK's server with the agent's questions as tools; raises ``CommandError`` where the SDK is not installed."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise CommandError(
            f"the Python SDK of the Model Context Protocol is not installed ({error}): pip install 'graphguard[mcp]'"
        ) from error
    server = MCPServer("graphguard", instructions=INSTRUCTIONS, version=version("graphguard"))
    for name in (*READING, *RUNNING):
        hints = ToolAnnotations(read_only_hint=name in READING, destructive_hint=False)
        server.add_tool(_answering(getattr(agent, name)), annotations=hints)
    return server


def _answering(question: Callable[..., Any]) -> Callable[..., Any]:
    """The question as the SDK asks it, in a thread of its own: a refusal is an error of the tool, in our words."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(question)
    def ask(*args: Any, **keywords: Any) -> Any:
        try:
            return question(*args, **keywords)
        except RefusedError as error:
            raise ToolError(str(error)) from error

    ask.__doc__ = inspect.getdoc(question)
    return ask
