"""A connection to PostgreSQL is reset at each message of a batch, to the server and back, between messages and within one.

What surely wrote nothing is sent again unseen; what may have been written is said to be unknown, and sent again by whoever wants it
done it is there once. Not here: a connection that is lost between exchanges (`test_pg_lost`), days that go on over it (`test_explorer`).
"""

from __future__ import annotations

from itertools import count

import pytest
import trio

from callboard.storage.model.errors import OutcomeUnknown
from callboard.storage.model.messages import Receipt
from callboard.storage.ops.deliveries import Ended
from callboard.tests.contract.pg_kit import Process, commit, post, processes
from callboard.tests.contract.postgres_server import session_server
from callboard.tests.crash.pg_proxy import Proxy, Towards, proxied

LIMIT = 60.0
MESSAGES_LEAST = 40
"""A batch with fewer would not be the one that is meant."""
STEP_WITHIN = 5


@pytest.mark.spec("INB-13", "RT-9", "INB-1", "INB-8")
@pytest.mark.parametrize("towards", ["server", "client"])
@pytest.mark.parametrize("within", [False, True], ids=["between", "within"])
async def test_a_batch_is_there_once_wherever_its_connection_was_reset(towards: Towards, within: bool) -> None:
    server = session_server()
    with server.database() as url:
        database = url.partition("@/")[2].partition("?")[0]
        async with proxied(server.sockets / ".s.PGSQL.5432") as proxy:
            through = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}?sslmode=disable&gssencmode=disable"
            async with processes(through, 1) as (process,):
                with trio.fail_after(LIMIT):
                    unknown, messages = await cut_everywhere(process, proxy, towards, within)
        assert messages > MESSAGES_LEAST
        # Only the last exchange holds COMMIT.
        assert 0 < unknown < messages / 2
        rounds = -(-messages // (STEP_WITHIN if within else 1)) + 1
        entries = server.execute("SELECT content FROM entry WHERE role = 'user' ORDER BY seq", database=database)
        assert [int(content) for (content,) in entries] == list(range(rounds + 1))
        answers = server.execute("SELECT content FROM entry WHERE role = 'assistant' ORDER BY seq", database=database)
        assert [int(content) for (content,) in answers] == list(range(rounds))
        ends = server.execute("SELECT count(*), count(DISTINCT message) FROM marker", database=database)
        assert ends == [(rounds, rounds)]


async def cut_everywhere(process: Process, proxy: Proxy, towards: Towards, within: bool) -> tuple[int, int]:
    """A turn that ends and a message that comes in are one batch, cut one message later each time.

    How many outcomes were unknown, and after how many messages nothing was left to cut.
    """
    session = await process.open()
    await process.post(session, "0")
    unknown = 0
    for n, messages in enumerate(count(0, STEP_WITHIN if within else 1)):
        (claimed,) = await process.claim()
        batch = commit(claimed, f"{n}"), post(session, f"{n + 1}", message_id=f"m-{n + 1}")
        proxy.plan(towards, messages, within=within)
        try:
            ended, receipt = await process.batch(*batch)
        except OutcomeUnknown:
            unknown += 1
            ended, receipt = await process.batch(*batch)
        else:
            assert isinstance(receipt, Receipt)
            assert receipt.created, "what had been written was sent again, and nobody was told"
        assert isinstance(ended, Ended)
        proxy.clear()
        if not proxy.cut:
            return unknown, messages
    raise AssertionError
