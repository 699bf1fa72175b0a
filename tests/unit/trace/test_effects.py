"""Whether an import may be repeated in other processes: what it does beside defining things is seen before it is done."""

import textwrap

import numpy.random  # noqa: F401 - loaded, as in a worker whose last check used it
import pytest

from graphguard.trace.depends.effects import Effects
from graphguard.trace.process.children import Family
from graphguard.trace.process.limits import Limits
from graphguard.trace.programs.importing import Target, load
from graphguard.trace.source.sources import ProjectFiles


@pytest.fixture
def imported(tmp_path):
    """``imported(text)``: why the import of a file with this text may not be repeated; "" where it may."""

    def run(text: str) -> str:
        (tmp_path / "model.py").write_text("WIDTH = 4\n")
        file = tmp_path / "subject.py"
        file.write_text(textwrap.dedent(text))
        family, answers, said = Family(), [], []

        def live(link):
            def unlike(why):
                link.tell({"why": why})
                raise SystemExit

            with Effects(unlike):
                load(Target(str(file), str(tmp_path)), ProjectFiles({}))
            return ""

        family.start(
            live,
            Limits(60.0),
            on_message=lambda _, message: said.append(message["why"]),
            on_output=lambda _: None,
            on_end=lambda ending: answers.append(ending.answer),
            leader=True,
        )
        while not answers:
            family.step()
        family.stop_all()
        return said[0] if said else answers[0]

    return run


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfrom torch import nn\nTABLE = torch.randn(3)\nMODEL = nn.Linear(2, 2)\n",
        "from model import WIDTH\nimport graphguard as gg\n@gg.check(mesh={'tp': 2})\ndef check(mesh): pass\n",
        "import os\nFAST = os.environ.get('FAST')\nos.environ['SLOW'] = '1'\n",
        "from dataclasses import dataclass\nfrom typing import NamedTuple\n@dataclass\nclass A:\n    x: int = 0\nclass B(NamedTuple):\n    y: int\n",
        "import argparse, json, math\nPARSER = argparse.ArgumentParser(prog='p')\n",
    ],
)
def test_definitions(imported, text):
    assert imported(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('hello')", "prints"),
        ("import sys\nsys.stderr.write('hello')", "prints"),
        ("raise ValueError", "raises ValueError"),
        ("import sys\nsys.exit(0)", "raises SystemExit"),
        ("import random\nWIDTH = random.randint(1, 4)", "draws at random"),
        ("import numpy\nWIDTH = numpy.random.rand()", "draws at random"),
        ("import time\nNOW = time.perf_counter()", "exec"),
        ("def f():\n    return [id(x) for x in ()]", "exec"),
        ("import torch\nBIG = torch.ones(2**27)", "takes much memory"),
        ("for _ in range(10**8): pass", "takes long"),
        ("from pathlib import Path\nTEXT = Path('model.py').with_name('data.txt').read_text()", "open data.txt"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "socket"),
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", "thread"),
    ],
)
def test_effects(imported, text, why):
    assert why in imported(text)


@pytest.mark.parametrize(
    "text",
    [
        "open('written', 'w').close()",
        "import os\nos.close(os.open('written', os.O_CREAT | os.O_WRONLY))",
        "import os\nos.mkdir('written')",
        "import os\nos.system('touch written')",
        "import subprocess\nsubprocess.run(['touch', 'written'])",
        "import os\nif os.fork() == 0:\n    open('written', 'w').close()\n    os._exit(0)",
        "try:\n    open('written', 'w').close()\nexcept BaseException:\n    pass",
    ],
)
def test_what_an_import_does_beside_is_not_done(imported, tmp_path, text):
    assert imported(text)
    assert not (tmp_path / "written").exists()
