"""Makes the environment of a user who has torch and nothing of GraphGuard: ``torch_environment.py FOLDER``.

The packages are links into the environment that runs this script (torch is large); only what torch and numpy themselves need is there.
"""

from __future__ import annotations

import re
import shutil
import sys
import venv
from importlib import metadata
from pathlib import Path

WANTED = ("torch", "numpy")


def closure(names: tuple[str, ...]) -> dict[str, metadata.Distribution]:
    """The distributions behind ``names``, with their unconditional dependencies, as far as they are installed."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        waiting += [
            re.split(r"[\s;<>=!~\[(]", requirement)[0]
            for requirement in found[name].requires or ()
            if "extra" not in requirement
        ]
    return found


def top_level(distribution: metadata.Distribution) -> set[str]:
    """The entries of site-packages that a distribution owns."""
    parts = {Path(file).parts[0] for file in distribution.files or ()}
    return {part for part in parts if part not in ("..", "__pycache__")}


def main(folder: Path) -> None:
    """Make the environment unless it is there for the same torch."""
    distributions = closure(WANTED)
    stamp = folder / f"torch-{distributions['torch'].version}"
    if stamp.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False)
    target = next(folder.glob("lib/python*/site-packages"))
    for distribution in distributions.values():
        source = Path(str(distribution.locate_file("")))
        for entry in top_level(distribution):
            (target / entry).symlink_to(source / entry)
    stamp.touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
