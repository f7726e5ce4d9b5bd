"""Node's `ws` holds a whole conversation with reconnects: a websocket client that we did not write, in another language.

Needs Node, and `ws` where NODE_PATH names it; `.ci/run` installs `ws`. Marked `browser` with the other tests that need more than Python.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import run
from typing import TYPE_CHECKING

import pytest
import trio

if TYPE_CHECKING:
    from callboard.tests.flows.edge_kit import Served

CLIENT = Path(__file__).with_name("node_client.mjs")
MESSAGES = 12


@pytest.mark.browser
@pytest.mark.spec("EVT-2", "EVT-3", "EVT-5")
async def test_node_merges_exactly_the_log_over_its_reconnects(served: Served) -> None:
    session = await served.runtime.open_session(agent=next(iter(served.runtime.agents)), title="node")
    command = ["node", str(CLIENT), served.url.replace("http", "ws", 1), served.token, session.id, str(MESSAGES)]

    def talk() -> str:
        done = run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = json.loads(await trio.to_thread.run_sync(talk))
    page = await served.runtime.store.reads.events(served.runtime.scope, session.id)
    assert told["connections"] >= 4
    assert [event["id"] for event in told["events"]] == [event.id for event in page.events]
    assert [event["kind"] for event in told["events"]] == [event.kind for event in page.events]
    assert [event["data"] for event in told["events"]] == [event.data for event in page.events]
    assert sum(event.kind == "turn.completed" for event in page.events) == MESSAGES
    assert set(told["accepted"]) <= {f"node-{number}" for number in range(MESSAGES)}
