"""A script run as ``python SCRIPT`` or ``python -m MODULE`` runs it, in a process that ``torchrun`` started."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

from graphguard.trace.scripts.script import Script
from graphguard.trace.source import standins
from graphguard.trace.source.provenance import outermost
from graphguard.trace.source.sources import ProjectFiles

#: What the agent of ``torchrun`` sets beside the rank's own variables.
_ELASTIC = {
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RUN_ID": "none",
    "ROLE_NAME": "default",
    "GROUP_WORLD_SIZE": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}
#: Trackers that start processes and speak to servers stay silent.
_TRACKERS = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled", "HF_HUB_DISABLE_TELEMETRY": "1"}


def prepare(script: Script, rank: int, size: int) -> None:
    """What is there before the script's first line: folder, variables, path, as far as ranks share them."""
    os.chdir(script.folder)
    os.environ.update(_ELASTIC)
    os.environ.update(ROLE_RANK=str(rank), ROLE_WORLD_SIZE=str(size))
    for name, value in _TRACKERS.items():
        os.environ.setdefault(name, value)


@outermost
def run_main(script: Script, files: ProjectFiles, *, alone: bool) -> None:
    """Run it to its end; raises whatever it raises."""
    standins.install()
    files.install()
    sys.path.insert(0, script.folder if script.module else os.path.dirname(script.path))
    sys.argv = [script.path, *script.given(alone=alone)]
    module = ModuleType("__main__")
    module.__file__ = script.path
    module.__dict__["__builtins__"] = __builtins__
    if script.module:
        module.__spec__ = importlib.util.find_spec(script.module)
        module.__package__ = script.module.rpartition(".")[0]
    sys.modules["__main__"] = module
    exec(files.compile(script.path), module.__dict__)  # noqa: S102 - running the user's script is what this process is for
