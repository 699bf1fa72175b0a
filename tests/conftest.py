"""No test reads or fills the cache of whoever runs it; ``--record`` records verdicts and relations anew (``recorded.py``); ``--tier`` says which tests run."""

import gc
import importlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# An error of ours fails the test in which it shows: for this process and all that it starts, and before any module asks.
os.environ["GRAPHGUARD_STRICT"] = "1"

# What a contributor waits for (``make test``): these folders, but for tests that are marked slow.
CORE = ("unit", "cases")
TESTS = Path(__file__).parent
# What most tests of a tier load sooner or later.
LIBRARIES = ("hypothesis", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="record the verdicts and relations of all cases that run, instead of comparing",
    )
    parser.addoption(
        "--tier",
        choices=("core", "rest", "long"),
        help="core: unit tests and cases that are not slow; long: tests that take a minute; rest: all others",
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """No garbage collection while thousands of tests are collected; with a tier none, ever, of the libraries that its tests load.

    Tests fork this process, and ask its collector for all objects.  Functions of tests, which count as a user's, are among them as before.
    """
    if session.config.getoption("--tier") and not session.config.getoption("numprocesses", None):
        for name in LIBRARIES:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if tier is not None:
        others = [item for item in items if _tier(item) != tier]
        items[:] = [item for item in items if _tier(item) == tier]
        config.hook.pytest_deselected(items=others)


def _tier(item: pytest.Item) -> str:
    if item.get_closest_marker("long") is not None:
        return "long"
    folder = item.path.relative_to(TESTS).parts[0]
    return "core" if folder in CORE and item.get_closest_marker("slow") is None else "rest"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("GRAPHGUARD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
    beside = tmp_path_factory.getbasetemp()
    left = [name for name in (".git", "pyproject.toml") if (beside / name).exists()]
    assert not left, f"a test left {left} in {beside}, and so made one project of the folders of all tests"
