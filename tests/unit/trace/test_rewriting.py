"""Calls that Python answers by itself are ours to answer, wherever they stand; methods of the same names are not."""

import ast
import builtins

import pytest

from graphguard.trace.source.rewriting import NAME, rewritten


@pytest.fixture(autouse=True)
def answered(monkeypatch):
    monkeypatch.setattr(builtins, NAME, lambda function, *arguments: function(*arguments), raising=False)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("y = int(x)", "y = N(int, x)"),
        ("y = max(int(x), min(float(y), 1))", "y = N(max, N(int, x), N(min, N(float, y), 1))"),
        ("y = f'{x + int(x)}'", "y = f'{x + N(int, x)}'"),
        ("y = '%d' % int(x)", "y = N(None, '%d', N(int, x)) + ''"),
        ("def f(a: list[int(1)] = int(x), *b, c=max(x, y)):\n    pass", "def f(a: list[N(int, 1)] = N(int, x), *b, c=N(max, x, y)):\n    pass"),
        ("y = [int(a) for a in x if min(a, 1)]", "y = [N(int, a) for a in x if N(min, a, 1)]"),
        ("match x:\n    case [a] if int(a):\n        pass", "match x:\n    case [a] if N(int, a):\n        pass"),
        ("try:\n    pass\nexcept E:\n    y = int(x)", "try:\n    pass\nexcept E:\n    y = N(int, x)"),
        ("y = max(x, key=int(x))", "y = max(x, key=N(int, x))"),
        ("y = int()", "y = int()"),
        ("if not len(x):\n    pass", "if not N(len, x):\n    pass"),
    ],
)  # fmt: skip
def test_calls(text, becomes):
    tree = rewritten(text.encode(), "f.py")
    assert isinstance(tree, ast.AST)
    assert ast.dump(tree) == ast.dump(ast.parse(becomes.replace("N(", f"{NAME}(")))
    compile(tree, "f.py", "exec")


@pytest.mark.parametrize("text", ["y = x.max(-1)[0]", "y = x.float()\nz = print(y)", "maximum(x)", "y = (1 +\nint(x)"])
def test_text_without_any_is_left_alone(text):
    assert rewritten(text.encode(), "f.py") == text.encode()
