"""The floors write what a whole turn writes: the same rows as the product, so that a ratio compares the same work."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from callboard.tests.bench.databases import Floor, Place, opened
from callboard.tests.bench.kit import open_sessions, running, whole

COUNTS = {
    "events": "SELECT count(*), count(DISTINCT n), max(n) FROM event",
    "entries": "SELECT role, count(*), sum(length(content)) FROM entry GROUP BY role ORDER BY role",
    "messages": "SELECT status, outcome, count(*) FROM message GROUP BY status, outcome",
    "markers": "SELECT count(*), count(DISTINCT message) FROM marker",
    "kinds": "SELECT kind, count(*) FROM event GROUP BY kind ORDER BY kind",
    "mailbox": "SELECT last_seq, last_event, depth, epoch FROM mailbox",
    "waiting": "SELECT count(*) FROM mailbox WHERE due IS NOT NULL OR holder IS NOT NULL",
}
Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with opened(request.param, tmp_path) as made:
        yield made


def ask(url: str) -> Ask:
    def asked(sql: str) -> list[tuple[Any, ...]]:
        if url.startswith("postgresql"):
            with psycopg.connect(url) as server:
                return server.execute(sql.encode()).fetchall()
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            return file.execute(sql).fetchall()
        finally:
            file.close()

    return asked


def counts(url: str) -> dict[str, list[tuple[Any, ...]]]:
    asked = ask(url)
    return {name: asked(sql) for name, sql in COUNTS.items()}


def turns(floor: Floor, number: int) -> None:
    floor.accept(number, batch=2)
    for _ in range(number):
        floor.finish(floor.claim(1))


async def test_a_floors_turns_leave_the_rows_that_the_products_leave(place: Place) -> None:
    turns(place.floor("floor", 1), 3)
    async with running(place.url("ours")) as runtime:
        await whole(runtime, await open_sessions(runtime.store, 1), 3)
    product = counts(place.url("ours"))
    assert product["markers"] == [(3, 3)]
    assert product["waiting"] == [(0,)]
    assert counts(place.url("floor")) == product


def test_a_floor_claims_each_mailbox_once_and_its_oldest_message_first(place: Place) -> None:
    floor = place.floor("floor", 3)
    floor.accept(7, batch=7)
    first = floor.claim(2)
    assert len(first) == 2
    second = floor.claim(5)
    assert sorted(row[0] for row in first + second) == [1, 2, 3]
    assert floor.claim(5) == []
    heads = dict(ask(place.url("floor"))("SELECT mailbox, min(id) FROM message GROUP BY mailbox"))
    assert {row[0]: row[2] for row in first + second} == heads
    floor.finish(first + second)
    assert sorted(row[0] for row in floor.claim(5)) == [1, 2, 3]


def test_a_floor_that_is_opened_again_takes_what_was_held(place: Place) -> None:
    floor = place.floor("floor", 2)
    floor.accept(2, batch=2)
    held = floor.claim(2)
    again = floor.recover()
    assert sorted((mailbox, epoch - 1, message, uid) for mailbox, epoch, message, uid in again) == sorted(held)
