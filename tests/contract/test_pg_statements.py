"""How a statement is written for the rows that it is given: what they say alike goes once, and the rows are the same."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from callboard.storage.postgres.bridge import Connection
from callboard.storage.postgres.statements import SHAPES_MOST, Statement, statements
from callboard.tests.contract.pg_kit import processes
from callboard.tests.contract.postgres_server import session_server

WIDTH = 4
CHOICES = ([1, -(2**63)], ["a", 'q",\\'], [0.1, 1796061552.843328], [b"\0", b"x"])


@pytest.fixture
async def conn() -> AsyncIterator[Connection]:
    with session_server().database() as url:
        async with processes(url, 1) as (process,):
            connection = await process.third()
            yield connection
            connection.close()


def statement(called: str = " AS v (a, b, c, d)") -> Statement:
    return Statement(f"SELECT * FROM unnest($1::bigint[], $2::text[], $3::float8[], $4::bytea[]){called}", ())


@pytest.mark.parametrize("called", ["", " AS v (a, b, c, d)"])
async def test_rows_are_the_same_in_every_shape(conn: Connection, called: str) -> None:
    asked = statement(called)
    chance = random.Random(11)
    seen: set[str] = set()
    for _ in range(200):
        # Some columns say one thing in all rows, or nothing.
        kept = [chance.choice((values, values[:1], [None])) for values in CHOICES]
        rows = [tuple(chance.choice(values) for values in kept) for _ in range(chance.randrange(1, 6))]
        text, arguments = asked.asked(rows)
        seen.add(text)
        assert (await conn.execute(text, arguments)).rows == rows
    assert len(seen) == SHAPES_MOST


def test_what_all_rows_say_is_an_argument_of_its_own() -> None:
    text, arguments = statement().asked([(1, "x", 0.5, b"1"), (2, "x", 0.5, b"2")])
    assert text == (
        "SELECT * FROM (SELECT c1, $2::text AS c2, $3::float8 AS c3, c4 FROM unnest($1::bigint[], $4::bytea[]) AS u (c1, c4))"
        " AS v (a, b, c, d)"
    )
    assert arguments == [(1, 2), "x", 0.5, (b"1", b"2")]


def test_there_are_few_shapes_and_the_best_of_them_is_taken() -> None:
    asked = Statement(f"SELECT * FROM unnest({', '.join(f'${n}::bigint[]' for n in range(1, 9))})", ())

    def alike(*columns: int) -> str:
        return asked.asked([tuple(0 if n in columns else row for n in range(8)) for row in range(2)])[0]

    first = [alike(n) for n in range(1, SHAPES_MOST)]
    assert len({*first, asked.text}) == SHAPES_MOST
    assert alike(7, 6) in (first[6 - 1], first[7 - 1]), "what is alike in both is written once in one"
    assert alike() == asked.text


def test_a_statement_with_names_takes_no_rows() -> None:
    named = {name for name, each in statements().items() if each.names}
    assert named
    assert not any(statements()[name].rows for name in named)
