"""No test reads or fills the cache of whoever runs it."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHGUARD_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
