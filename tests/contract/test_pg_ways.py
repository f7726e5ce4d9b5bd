"""How many ways to the server and back a batch takes on PostgreSQL: each is time in which all others wait.

Not here: what is asked (`storage/postgres/ahead`), how fast that is (`bench`).
"""

from __future__ import annotations

from typing import Any

import pytest

from callboard.storage.model.addresses import Sender
from callboard.storage.model.errors import CallboardError, NotPermitted
from callboard.storage.model.policies import Edge
from callboard.storage.ops import Enqueue, Op
from callboard.storage.ops.namespace import set_policy
from callboard.tests.contract.pg_kit import SCOPE, Process, commit, post


async def ways(one: Process, *batch: Op[Any]) -> int:
    """How many a batch takes, of which nothing is refused."""
    counted = await one.counted()
    assert not [outcome for outcome in await one.batch(*batch) if isinstance(outcome, CallboardError)]
    return counted.ways


@pytest.mark.parametrize(
    ("ends", "sends", "claims", "expected"),
    [(2, 2, 1, 4), (2, 2, 0, 3), (2, 0, 1, 4), (0, 2, 1, 3), (0, 2, 0, 2), (0, 0, 1, 3)],
)
async def test_what_a_batch_asks_goes_together_as_far_as_it_can(
    one: Process, ends: int, sends: int, claims: int, expected: int
) -> None:
    sessions = [await one.open() for _ in range(2)]
    for session in sessions:
        await one.batch(post(session), post(session))
    ending = [commit(claimed) for claimed in await one.claim()] if ends else []
    batch = [*ending, *(post(session) for session in sessions[:sends]), *(one.claim_op() for _ in range(claims))]
    assert len(batch) == ends + sends + claims
    assert await ways(one, *batch) == expected


@pytest.mark.spec("NS-4")
async def test_the_rules_of_a_project_are_asked_for_once_and_anew_when_they_have_changed(one: Process) -> None:
    session, writer = await one.open(), await one.open()

    def send() -> Enqueue:
        return post(session, sender=Sender(writer.id, "session", "writer"), edge=Edge.COLLABORATE)

    await one.apply(send())
    assert await ways(one, send(), send()) == await ways(one, *(send() for _ in range(20)))
    first, _, second = await one.batch(send(), set_policy(SCOPE, "/", edge=Edge.HANDOFF_ONLY), send())
    assert first.created
    assert isinstance(second, NotPermitted)
