from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.servers.postgresql import find_programs, run_server


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URI of a PostgreSQL server that the tests start."""
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    if find_programs() is None:
        pytest.skip("no PostgreSQL server is installed: scripts/ensure_postgresql.sh says how to get one")
    with run_server() as uri:
        yield uri
