"""A scripted day, asked of whichever server is next, and what of it can be compared: transcripts and events without ids and times of ours.

Not here: any judgement, the agents (`same_day_team`). Each step of the script waits for a row that the next one builds on, so the day goes
the same way each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import attrs
import trio

from callboard import client
from callboard.tests.flows.cli_kit import DEADLINE, Serving
from callboard.tests.flows.same_day_team import team

Event = tuple[str, dict[str, Any]]
TERMINAL = ("turn.completed", "turn.failed", "turn.stopped")
DROPPED = {"at", "retry_at", "expires", "holder", "block", "seconds", "last_event_id"}
_OURS = re.compile(r"[0-9a-f]{16,}")


class Day:
    """The script's hands: each call goes to the next server."""

    def __init__(self, servers: Sequence[Serving]) -> None:
        self._servers = cycle(servers)
        self.sessions: dict[str, str] = {}

    async def live(self) -> None:
        """All of the day."""
        for path in team.sessions:
            self.sessions[path] = await next(self._servers).session(path)
        for part in (
            self._greet, self._fail, self._delegate, self._stop, self._delete, self._change, self._ask, self._hand_over,
        ):  # fmt: skip
            await part()

    async def _greet(self) -> None:
        await self.say("/echo", "hello", "echo-1")
        await self.say("/echo", "hello", "echo-1")  # the same send again, elsewhere
        await self.say("/stream", "go", "stream-1")
        await self.say("/relay", "/echo ping", "relay-1")
        await self.ended("/echo", 2)

    async def _fail(self) -> None:
        await self.post("/flaky", "fail once", "flaky-1")
        await self.until("/flaky", lambda kind, _: kind == "attempt.relinquished")
        await self.post("/flaky", "go", "flaky-2")
        await self.ended("/flaky", 2)

    async def _delegate(self) -> None:
        for n in (1, 2):
            await self.say("/parent", "begin", f"parent-{n}")
            await self.ended("/parent", 2 * n)

    async def _stop(self) -> None:
        """A stop drops what is queued; a session that had sent some of it has a notice in its next turn."""
        await self.post("/slow", "begin", "slow-1")
        await self.until("/slow", lambda kind, _: kind == "turn.token")
        await self.say("/relay", "/slow never seen", "relay-2")
        await self.post("/slow", "dropped too", "slow-2")
        await self.ask("POST", f"/v1/sessions/{self.sessions['/slow']}/stop", {"drop_queued": True})
        # Two that were dropped, and the one that was stopped.
        await self.ended("/slow", 3)
        await self.say("/relay", "/echo after", "relay-3")
        await self.ended("/echo", 3)

    async def _delete(self) -> None:
        await self.post("/doomed", "begin", "doomed-1")
        await self.until("/doomed", lambda kind, _: kind == "turn.token")
        await self.say("/relay", "/doomed waits", "relay-4")
        await self.ask("DELETE", f"/v1/sessions/{self.sessions.pop('/doomed')}", expected=204)
        await self.say("/relay", "/echo at last", "relay-5")
        await self.ended("/echo", 4)

    async def _change(self) -> None:
        """What waits is cancelled, and put in again."""
        await self.post("/slow", "begin", "slow-3")
        await self.until("/slow", lambda kind, data: kind == "turn.token" and data["message_id"] == "slow-3")
        await self.post("/slow", "quick", "slow-4")
        await self.ask("POST", "/v1/inbox/slow-4/cancel")
        await self.ask("POST", "/v1/inbox/slow-4/requeue", expected=202)
        await self.ask("POST", f"/v1/sessions/{self.sessions['/slow']}/stop")
        await self.ended("/slow", 6)

    async def _ask(self) -> None:
        for n, approve in ((1, True), (2, False)):
            await self.post("/clerk", "serve me", f"clerk-{n}")
            asked: list[str] = []

            def waits(kind: str, data: dict[str, Any], asked: list[str] = asked, n: int = n) -> bool:
                if kind == "turn.waiting" and data["message_id"] == f"clerk-{n}":
                    asked.append(data["approval_id"])
                return bool(asked)

            await self.until("/clerk", waits)
            await self.ask("POST", f"/v1/approvals/{asked[0]}", {"approve": approve})
            await self.ended("/clerk", n)

    async def _hand_over(self) -> None:
        """Twice in one turn: a post behind the first handoff is taken into that turn, one behind the second starts the next one."""
        await self.post("/guide", "/echo take:guide-2 /stream leave:guide-3", "guide-1")
        for to, behind in (("/echo", "guide-2"), ("/stream", "guide-3")):
            await self.until("/guide", lambda kind, data, to=to: kind == "turn.handoff" and data["path"] == to)
            await self.post("/guide", f"I wait, {behind}", behind)
        await self.ended("/guide", 2)

    # -- the hands ---------------------------------------------------------------------------------------------------------

    async def ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, expected: int | None = None
    ) -> Any:
        async with next(self._servers).http as http:
            answer = await http.request(method, path, json=body if body is not None or method == "DELETE" else {})
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        assert expected in (None, answer.status_code)
        return answer.json() if answer.content else None

    async def post(self, path: str, content: str, message_id: str) -> None:
        body = {"content": content, "message_id": message_id}
        await self.ask("POST", f"/v1/sessions/{self.sessions[path]}/messages", body)

    async def say(self, path: str, content: str, message_id: str) -> None:
        """Post, and wait for the end of the turn."""
        await self.post(path, content, message_id)
        await self.until(path, lambda kind, data: kind in TERMINAL and data["message_id"] == message_id)

    async def ended(self, path: str, count: int) -> None:
        """Wait until so many turns of a session have ended."""
        seen: list[str] = []

        def all_have(kind: str, _: dict[str, Any]) -> bool:
            seen.extend([kind] if kind in TERMINAL else [])
            return len(seen) == count

        await self.until(path, all_have)

    async def until(self, path: str, found: Callable[[str, dict[str, Any]], bool]) -> None:
        """Read a session's events from the first one until something is found in one."""
        server = next(self._servers)
        with trio.fail_after(DEADLINE):
            async with client.connect(server.url, server.token_file.read_text().strip()) as board:
                async for event in board.subscribe(self.sessions[path]):
                    if found(event.kind, event.data):
                        return


@attrs.frozen
class Record:
    """What a day has left in one session."""

    transcript: dict[str, list[tuple[Any, ...]]]
    """Entries by what they are in reply to."""
    events: list[Event]
    holders: frozenset[str]


async def recorded(day: Day, server: Serving) -> dict[str, Record]:
    """All sessions as one server shows them, children by the message that they were started for."""
    found: dict[str, Record] = {}
    async with server.http as http:
        sessions = (await http.get("/v1/sessions", params={"limit": 200})).json()["sessions"]
        names = {session["id"]: session["path"] or f"child of {session['title']}" for session in sessions}
        for session, name in names.items():
            entries = (await http.get(f"/v1/sessions/{session}/transcript")).json()["entries"]
            events = await _events(server, session)
            holders = frozenset(data["holder"] for kind, data in events if kind == "attempt.claimed")
            # How an answer is cut into tokens is a matter of time: a result names its handoff by the place among them, not by its number.
            handed = [n for n, (kind, _) in enumerate(events, start=1) if kind == "turn.handoff"]
            for told in (*entries, *(data for _, data in events)):
                if told.get("handoff") is not None:
                    told["handoff"]["event_id"] = handed.index(told["handoff"]["event_id"])
            found[name] = Record(_grouped(entries, names), _joined(_plain(events, names)), holders)
    return found


async def _events(server: Serving, session: str) -> list[Event]:
    events: list[Event] = []
    async with client.connect(server.url, server.token_file.read_text().strip()) as board:
        subscription = board.subscribe(session)
        newest = await subscription.started()
        while len(events) < newest:
            event = await anext(subscription)
            assert event.id == len(events) + 1
            events.append((event.kind, event.data))
    return events


def _grouped(entries: list[dict[str, Any]], names: dict[str, str]) -> dict[str, list[tuple[Any, ...]]]:
    groups: dict[str, list[tuple[Any, ...]]] = {}
    for entry in _plain(entries, names):
        shown = (
            entry["seq"],
            entry["role"],
            entry["content"],
            entry["state"],
            entry["sender"]["id"],
            entry["sender"]["kind"],
            entry.get("handoff"),
        )
        groups.setdefault(str(entry.get("in_reply_to")), []).append(shown)
    return groups


def _joined(events: list[Event]) -> list[Event]:
    """The same, the tokens of an attempt that stand together as one."""
    joined: list[Event] = []
    for kind, data in events:
        if kind == "turn.token" and joined and joined[-1][0] == kind and joined[-1][1]["attempt"] == data["attempt"]:
            joined[-1][1]["text"] += data["text"]
        else:
            joined.append((kind, dict(data)))
    return joined


def _plain(value: Any, names: dict[str, str]) -> Any:
    """The same without times; our ids by their paths, and else by the order in which they come."""
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"#{len(numbers) + 1}")

    def plain(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: plain(inner) for name, inner in item.items() if name not in DROPPED}
        if isinstance(item, (list, tuple)):
            return [plain(inner) for inner in item]
        if isinstance(item, str):
            for session, name in names.items():
                item = item.replace(session, name)
            return _OURS.sub(number, item)
        return item

    return plain(value)
