"""The rules of handoffs as a table, for the client in Python and the console's JavaScript alike. Not here: carrying it out.

A case is a list of steps for a client `me`; what is decided is checked at its step.
"""

from __future__ import annotations

from typing import Any, Final

Step = list[Any]
DESK, DEPLOY, PRICING = "ses_desk", "ses_deploy", "ses_pricing"
MINE, THEIRS = f"me::{'0' * 32}", f"other::{'1' * 32}"


def handed(number: int, target: str = DEPLOY, *, session: str = DESK, **more: Any) -> list[Any]:
    """[session, id, data] of an event."""
    path = {DESK: "/", DEPLOY: "/ops/deploy", PRICING: "/research/pricing"}[target]
    data = {"path": path, "channel_id": target, "from_path": "/", "message_id": MINE, "turn_id": "turn_1", **more}
    return [session, number, data]


RULES: Final[dict[str, list[Step]]] = {
    "from the open session it is followed, once": [
        ["open", DESK],
        ["decide", handed(7), "follow", "open"],
        ["follow", handed(7)],
        ["decide", handed(7), "ignore", "handled"],
        ["decide", handed(9, PRICING), "offer", "elsewhere"],
    ],
    "also after the user is back where it came from": [
        ["open", DESK],
        ["follow", handed(7)],
        ["navigate", DESK],
        ["navigated", {DESK: 5}],
        ["decide", handed(7), "ignore", "handled"],
        ["decide", handed(8), "follow", "open"],
    ],
    "not newer than where the user went last": [
        ["open", DESK],
        ["navigate", PRICING],
        ["navigated", {DESK: 7, DEPLOY: 0}],
        ["decide", handed(7), "ignore", "older"],
        ["decide", handed(8), "offer", "elsewhere"],
        ["navigate", DESK],
        ["navigated", {DESK: 9}],
        ["decide", handed(8), "ignore", "older"],
        ["decide", handed(10), "follow", "open"],
    ],
    "ids are numbers within a session": [
        ["open", DESK],
        ["navigate", DESK],
        ["navigated", {DESK: 1, PRICING: 50}],
        ["decide", handed(7), "follow", "open"],
        ["follow", handed(7)],
        ["decide", handed(7, DESK, session=PRICING), "ignore", "older"],
        ["decide", handed(51, DESK, session=PRICING), "offer", "elsewhere"],
        ["decide", handed(7, PRICING, session=DEPLOY), "follow", "open"],
    ],
    "nothing is decided while the user is on the way": [
        ["open", DESK],
        ["navigate", PRICING],
        ["decide", handed(7), "hold", "going"],
        ["navigate", DESK],
        ["decide", handed(7), "hold", "going"],
        ["navigated", {DESK: 6}],
        ["decide", handed(7), "follow", "open"],
    ],
    "what is old already is known to be so on the way too": [
        ["open", DESK],
        ["navigate", DESK],
        ["navigated", {DESK: 7}],
        ["navigate", PRICING],
        ["decide", handed(7), "ignore", "older"],
    ],
    "to where the user is already": [
        ["open", DEPLOY],
        ["decide", handed(7), "ignore", "there"],
    ],
    "a target that wants confirmation is offered, until it is settled": [
        ["open", DESK],
        ["decide", handed(7, confirm=True), "offer", "confirm"],
        ["decide", handed(7, confirm=True), "offer", "confirm"],
        ["settle", handed(7, confirm=True)],
        ["decide", handed(7, confirm=True), "ignore", "handled"],
    ],
    "no session is open": [
        ["decide", handed(7), "offer", "elsewhere"],
    ],
    "what another client asked for is offered": [
        ["open", DESK],
        ["decide", handed(7, message_id=THEIRS), "offer", "other"],
        ["decide", handed(8, message_id="m-1"), "follow", "open"],
        ["decide", handed(8, message_id="me::short"), "follow", "open"],
    ],
}
"""What a client `me` knows, step by step, and what is decided about an event then: verdict and reason."""


def ended(number: int, turn: str = "turn_1", kind: str = "turn.completed", **more: Any) -> list[Any]:
    return [number, kind, {"turn_id": turn, "message_id": MINE, **more}]


def begun(number: int, turn: str = "turn_1") -> list[Any]:
    return [number, "turn.started", {"turn_id": turn}]


def given(number: int, target: str = DEPLOY, turn: str = "turn_1") -> list[Any]:
    return [number, "turn.handoff", handed(number, target, turn_id=turn)[2]]


def target(number: int) -> dict[str, Any]:
    """What a result says of the handoff whose event that is."""
    return {"path": "/ops/deploy", "channel_id": DEPLOY, "event_id": number}


RESULTS: Final[dict[str, tuple[list[list[Any]], int | None, bool]]] = {
    "nothing": ([], None, False),
    "posts alone": ([[1, "message.created", {"message_id": "m-1"}]], None, False),
    "the last turn's": ([begun(1), given(2), ended(3, handoff=target(2))], 2, True),
    "the last one of several": ([begun(1), given(2, PRICING), given(3), ended(4, handoff=target(3))], 3, True),
    "of the turn that runs": ([ended(1, "turn_0"), begun(2), given(3)], 3, True),
    "of the first turn, that runs": ([begun(1), given(2)], 2, False),
    "over the attempts of a turn": (
        [ended(1, "turn_0"), begun(2), given(3), [4, "attempt.claimed", {"turn_id": "turn_1"}]], 3, True,
    ),
    "a turn that runs since changes nothing": (
        [begun(1), given(2), ended(3, handoff=target(2)), begun(4, "turn_2")], 2, True,
    ),
    "unless it hands over too": (
        [begun(1), given(2), ended(3, handoff=target(2)), begun(4, "turn_2"), given(5, PRICING, "turn_2")], 5, True,
    ),
    "or has ended without": (
        [begun(1), given(2), ended(3, handoff=target(2)), begun(4, "turn_2"), ended(5, "turn_2")], None, True,
    ),
    "not of a turn that failed": (
        [ended(1, "turn_0"), begun(2), given(3), ended(4, kind="turn.failed")], None, True,
    ),
    "which has no result, so what was before it stays": (
        [begun(1), given(2), ended(3, handoff=target(2)), begun(4, "turn_2"), ended(5, "turn_2", "turn.failed")], 2, True,
    ),
    "of a stopped one": ([begun(1), given(2), ended(3, kind="turn.stopped", handoff=target(2))], 2, True),
    "a message that fails while it waits changes nothing": (
        [begun(1), given(2), ended(3, "turn_2", "turn.failed"), ended(4, handoff=target(2))], 2, True,
    ),
    "its event is in no log any more": ([ended(9, handoff=target(2))], 2, True),
    "it began before what was seen, and handed nothing over": ([ended(9)], None, True),
    "only a failed turn is left of what was": ([ended(9, kind="turn.failed")], None, False),
}  # fmt: skip
"""Events of the session `ses_desk`; which event a reload has to look at, and whether there is a result among them."""


def post(state: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "state": state, "message_id": MINE}


def answer(handoff: int | None = None) -> dict[str, Any]:
    """The entry of an answer, which may hand over."""
    entry = {"role": "assistant", "state": "delivered", "in_reply_to": MINE}
    return entry if handoff is None else {**entry, "handoff": target(handoff)}


DONE: Final = [post("delivered"), answer(2)]
TRANSCRIPTS: Final[dict[str, tuple[list[dict[str, Any]], int | None]]] = {
    "nothing": ([], None),
    "no answer yet": ([post("processing"), post("pending")], None),
    "the newest answer's": ([post("delivered"), answer(1), *DONE], 2),
    "which hands nothing over": ([*DONE, post("delivered"), answer()], None),
    "a turn that runs since changes nothing": ([*DONE, post("processing"), post("pending", "notice")], 2),
    "a stopped or silent one has ended since": ([*DONE, post("delivered")], None),
    "and the next one runs": ([*DONE, post("delivered"), post("processing")], None),
    "a failed one has": ([*DONE, post("failed")], None),
    "a notice was seen to, in silence": ([*DONE, post("delivered", "notice")], None),
}
"""Newest entries of the transcript of `ses_desk`, whose log has no result any more; which event a reload has to look at."""
