"""Triton on a machine without it: imports that a program takes for granted work, those that it guards do not, kernels are told."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from graphguard.trace.source import standins
standins.install()
{body}
"""


def run(tmp_path, body: str, **modules: str) -> str:
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    program = PROGRAM.format(folder=str(tmp_path), body=textwrap.dedent(body))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


KERNELS = """
    import triton
    import triton.language as tl

    @triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
    @triton.jit
    def scale(x, n, BLOCK: tl.constexpr):
        pass
    """

pytestmark = pytest.mark.skipif(
    bool(__import__("importlib.util").util.find_spec("triton")), reason="triton itself is installed"
)


def test_unguarded_imports_work(tmp_path):
    assert "cdiv 3" in run(tmp_path, "import kernels; print('cdiv', kernels.triton.cdiv(5, 2))", kernels=KERNELS)


def test_guarded_imports_find_nothing(tmp_path):
    body = """
    try:
        import kernels
    except ImportError:
        print("fallback")
    """
    assert run(tmp_path, body, kernels=KERNELS).strip() == "fallback"


def test_guarded_imports_find_nothing_that_others_imported_before(tmp_path):
    body = """
    import kernels
    try:
        import triton.language
    except ImportError:
        print("fallback")
    """
    assert run(tmp_path, body, kernels=KERNELS).strip() == "fallback"


def test_asking_finds_nothing(tmp_path):
    assert run(tmp_path, "import importlib.util; print(importlib.util.find_spec('triton'))").strip() == "None"


def test_a_launch_is_told(tmp_path):
    said = run(tmp_path, "import kernels; kernels.scale[(1,)](1, 2, BLOCK=64)", kernels=KERNELS)
    assert "the kernel 'scale' is written in Triton, which is not installed here" in said
