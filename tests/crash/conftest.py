"""Fixtures of the crash tests: `workers` starts processes that may be killed, `file` is what they share, `rows` reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callboard.tests.crash.kit import Workers, Zygote, workers_of
from callboard.tests.crash.rows import Rows


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture
async def workers(zygote: Zygote) -> AsyncIterator[Workers]:
    async with workers_of(zygote) as workers:
        yield workers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "desk.db"


@pytest.fixture
def rows(file: Path) -> Rows:
    return Rows(file)
