"""A project on disk with a tracing worker on it, for tests of what the worker makes of files."""

import textwrap
from pathlib import Path

from graphguard.checks.running.worker_client import WorkerClient
from graphguard.ir import Capture, capture_from_json

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x))
"""

CHECK = """
import graphguard as gg
from model import Model

@gg.check(mesh=[{"tp": 2}, {"tp": 3}])
def check(mesh):
    return gg.Refinement(Model(), Model(), (gg.tensor(2, 4),))
"""


class Project:
    """A folder of check files, and a worker on it."""

    def __init__(self, root: Path, client: WorkerClient, logs: list[str]) -> None:
        self.root, self.client, self.logs = root, client, logs

    def write(self, name: str, text: str) -> str:
        (self.root / name).write_text(textwrap.dedent(text))
        return str(self.root / name)

    def check(self, body: str, **params) -> Capture:
        """Capture a check whose function has this body."""
        lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        text = "import os, sys, time, torch\nimport torch.distributed as dist\nimport graphguard as gg\nfrom torch import nn\nfrom model import Model\n"
        return self.capture("bad.py", text + f'@gg.check(mesh={{"tp": 2}})\ndef check(mesh):\n{lines}\n', **params)

    def capture(self, file: str, text: str, **params) -> Capture:
        asked = {
            "file": self.write(file, text),
            "root": str(self.root),
            "name": "check",
            "mesh": None,
            "cache": False,
            **params,
        }
        return capture_from_json(self.client.call("capture", asked)["capture"])
