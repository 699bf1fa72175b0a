"""No test reads or fills the cache of whoever runs it; ``--record`` records verdicts and relations anew (``recorded.py``)."""

from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="record the verdicts and relations of all cases that run, instead of comparing",
    )


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("GRAPHGUARD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
