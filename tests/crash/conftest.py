"""Fixtures of the crash tests: `workers` starts processes that may be killed, `file` is what they share, `rows` reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callboard.tests.crash.kit import Spares, Workers, workers_of
from callboard.tests.crash.rows import Rows


@pytest.fixture(scope="session")
def spares() -> Iterator[Spares]:
    spares = Spares()
    yield spares
    spares.end()


@pytest.fixture
async def workers(spares: Spares) -> AsyncIterator[Workers]:
    async with workers_of(spares) as workers:
        yield workers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "desk.db"


@pytest.fixture
def rows(file: Path) -> Rows:
    return Rows(file)
