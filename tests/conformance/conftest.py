"""One server for all tests, put back after each: see ``target``."""

from collections.abc import Iterator

import pytest
from target import Target, target_from_environment


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target_from_environment(tmp_path_factory.mktemp("plain"), batching=False) as target:
        assert target is not None
        target.reset()
        yield target


@pytest.fixture(scope="session")
def batching_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target_from_environment(tmp_path_factory.mktemp("batching"), batching=True) as target:
        if target is None:
            pytest.skip("expected REWRITER_CONFORMANCE_BATCHING_TARGET, a server with batching, found none")
        target.reset()
        yield target


@pytest.fixture
def target(server: Target) -> Iterator[Target]:
    """A server without batching. Tests may change what it serves."""
    yield server
    server.reset()


@pytest.fixture
def batching_target(batching_server: Target) -> Iterator[Target]:
    """A server that makes batches of what arrives within a third of a second."""
    yield batching_server
    batching_server.reset()


@pytest.fixture
def faulty(target: Target) -> Target:
    """A server that can be told to fail."""
    if target.stand_in is None:
        pytest.skip("the real TF Serving does not fail on demand")
    return target
