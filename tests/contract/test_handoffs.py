"""A handoff is committed with its step, checked in that transaction, and is what the turn's result carries. On both databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from callboard.storage.model.errors import NotPermitted, UnknownTarget
from callboard.storage.model.sessions import Handoff, SessionKind
from callboard.storage.model.states import Outcome, Reason, Status
from callboard.storage.model.turns import StepKind
from callboard.storage.ops import Cancel, DeleteSession, Fail, HandBack, PruneEvents, PruneMessages, RecordStep, Retry
from callboard.storage.ops.deliveries import Absorb, HandOver, StepEvent
from callboard.storage.ops.namespace import set_policy
from callboard.storage.ops.sessions import update_session

if TYPE_CHECKING:
    from conftest import Kit, Reopen

    from callboard.storage.model.events import Event
    from callboard.storage.model.sessions import Session
    from callboard.storage.model.turns import Claimed


def step(claimed: Claimed, target: Session, number: int = 1, **fields: Any) -> RecordStep:
    """A call of connect_user with its pair of events."""
    given: dict[str, Any] = {"handoff": HandOver(target.path or "", target.id), **fields}
    return RecordStep(
        claimed.lease,
        f"turn:connect_user:{number}",
        StepKind.CALL,
        number,
        done=True,
        data={"tool": "connect_user"},
        result={"ok": {"path": target.path}},
        events=(StepEvent("tool.call", {"n": number}), StepEvent("tool.result", {"n": number})),
        **given,
    )


def given(events: list[Event]) -> list[int]:
    """The ids of the handoffs among events."""
    return [event.id for event in events if event.kind == "turn.handoff"]


def plain(handoff: Handoff | None) -> dict[str, Any] | None:
    return None if handoff is None else attrs.asdict(handoff)


@pytest.mark.spec("HND-2", "HND-1")
async def test_the_event_stands_behind_its_pair_and_a_repeat_writes_none(kit: Kit) -> None:
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
    receipt = await kit.post(desk, message_id="m-1")
    claimed = await kit.claim(desk)
    before = (await kit.events(desk))[-1].id
    first = await kit.store.apply(step(claimed, deploy))
    assert await kit.store.apply(step(claimed, deploy)) == first
    events = await kit.events(desk, before)
    assert [event.kind for event in events] == ["tool.call", "tool.result", "turn.handoff"]
    handed = events[-1]
    assert handed.id == before + 3
    assert handed.turn == f"turn_{receipt.id[4:]}"
    assert handed.data == {
        "turn_id": handed.turn,
        "message_id": "m-1",
        "attempt": 1,
        "path": "/ops/deploy",
        "channel_id": deploy.id,
        "from_path": "/",
    }
    assert await kit.events(deploy) == [], "nobody is moved, and nothing is sent"
    nameless = await kit.open()
    await kit.commit(claimed)
    await kit.post(nameless)
    await kit.store.apply(step(await kit.claim(nameless), deploy))
    assert (await kit.events(nameless))[-1].data["from_path"] is None


@pytest.mark.spec("HND-1", "HND-2")
async def test_what_is_not_there_or_not_allowed_is_refused_and_nothing_is_written(kit: Kit) -> None:
    desk, deploy, moved, gone = [await kit.open(path=path) for path in ("/", "/ops/deploy", "/moved", "/gone")]
    hidden = await kit.open(path="/hidden", kind=SessionKind.INTERNAL)
    elsewhere = await kit.open(scope=attrs.evolve(kit.scope, project="other"), path="/theirs")
    await kit.store.apply(update_session(kit.scope, moved.id, path="/moved/on"))
    await kit.store.apply(DeleteSession(kit.scope, gone.id, kit.ann))
    await kit.store.apply(set_policy(kit.scope, "/ops", handoff=False))
    await kit.post(desk)
    claimed = await kit.claim(desk)
    before = await kit.snapshot()
    for target in (
        moved,
        gone,
        hidden,
        elsewhere,
        attrs.evolve(deploy, path="/nowhere"),
        attrs.evolve(moved, path="/ops"),
    ):
        with pytest.raises(UnknownTarget, match="no session has this path"):
            await kit.store.apply(step(claimed, target))
    with pytest.raises(NotPermitted, match="/ops/deploy"):
        await kit.store.apply(step(claimed, deploy))
    assert await kit.snapshot() == before
    await kit.store.apply(set_policy(kit.scope, "/ops/deploy", handoff=True))
    await kit.store.apply(step(claimed, deploy))
    assert (await kit.kinds(desk))[-1] == "turn.handoff"


@pytest.mark.spec("HND-3")
async def test_of_several_each_has_its_event_and_the_last_is_the_result(kit: Kit) -> None:
    desk, deploy, pricing = [await kit.open(path=path) for path in ("/", "/ops/deploy", "/research/pricing")]
    await kit.post(desk)
    claimed = await kit.claim(desk)
    for number, target in enumerate((deploy, pricing, deploy, pricing), start=1):
        await kit.store.apply(step(claimed, target, number))
    await kit.commit(claimed, "Taking you there.")
    events = await kit.events(desk)
    handed = [event for event in events if event.kind == "turn.handoff"]
    assert [event.data["path"] for event in handed] == ["/ops/deploy", "/research/pricing"] * 2
    assert len({event.id for event in handed}) == 4
    expected = {"path": "/research/pricing", "channel_id": pricing.id, "event_id": handed[-1].id}
    assert (events[-1].kind, events[-1].data["handoff"]) == ("turn.completed", expected)
    asked, answer = await kit.entries(desk)
    assert asked.handoff is None
    assert answer.handoff == Handoff("/research/pricing", pricing.id, event_id=handed[-1].id)
    tail, _ = await kit.store.reads.transcript_tail(kit.scope, desk.id, 1)
    assert tail == [answer]


@pytest.mark.spec("HND-3")
async def test_a_turn_without_an_answer_of_its_own_is_found_in_the_transcript_too(kit: Kit) -> None:
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
    receipt = await kit.post(desk)
    claimed = await kit.claim(desk)
    await kit.store.apply(step(claimed, deploy))
    ended = await kit.commit(claimed, None, outcome=Outcome.NO_VISIBLE_REPLY)
    again = await kit.commit(claimed, None, outcome=Outcome.NO_VISIBLE_REPLY)
    assert again == ended
    answer = (await kit.entries(desk))[-1]
    assert (answer.role, answer.content, answer.seq) == ("assistant", "Taking you to /ops/deploy.", ended.seq)
    assert answer.handoff == Handoff("/ops/deploy", deploy.id, event_id=given(await kit.events(desk))[0])
    assert (await kit.message(receipt.id)).outcome is Outcome.ANSWERED
    last = (await kit.events(desk))[-1]
    assert (last.data["outcome"], last.data["seq"], last.data["content"]) == ("answered", ended.seq, answer.content)


async def test_a_stopped_turn_says_what_it_had_handed_over_and_gets_no_line(kit: Kit) -> None:
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
    await kit.post(desk)
    claimed = await kit.claim(desk)
    await kit.store.apply(step(claimed, deploy))
    await kit.commit(claimed, None, outcome=Outcome.STOPPED)
    assert [entry.role for entry in await kit.entries(desk)] == ["user"]
    last = (await kit.events(desk))[-1]
    (number,) = given(await kit.events(desk))
    assert last.kind == "turn.stopped"
    assert last.data["handoff"] == {"path": "/ops/deploy", "channel_id": deploy.id, "event_id": number}


@pytest.mark.spec("HND-3", "HND-2")
@pytest.mark.parametrize("how", ["taken over", "handed back", "retried"])
async def test_a_later_attempt_repeats_no_event_and_its_result_carries_the_handoff(kit: Kit, how: str) -> None:
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
    await kit.post(desk)
    claimed = await kit.claim(desk, seconds=0.0 if how == "taken over" else 30.0)
    if how != "taken over":
        await kit.store.apply(step(claimed, deploy))
        end = HandBack(claimed.lease, "shutdown") if how == "handed back" else Retry(claimed.lease, "boom", 0)
        await kit.store.apply(end)
    else:
        await kit.store.apply(step(claimed, deploy))
    again = await kit.claim(desk, "another")
    assert again.steps
    assert again.lease.attempt == 2
    done = await kit.store.apply(attrs.evolve(step(claimed, deploy), lease=again.lease))
    assert done.done
    await kit.commit(again, "Taking you there.")
    (number,) = given(await kit.events(desk))
    assert (await kit.entries(desk))[-1].handoff == Handoff("/ops/deploy", deploy.id, event_id=number)


@pytest.mark.spec("HND-3")
async def test_the_next_turn_inherits_nothing(kit: Kit) -> None:
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")

    async def handed() -> Claimed:
        await kit.post(desk)
        claimed = await kit.claim(desk)
        await kit.store.apply(step(claimed, deploy))
        return claimed

    async def check() -> None:
        await kit.turn(desk, "next", "plain")
        assert (await kit.entries(desk))[-1].handoff is None
        assert "handoff" not in (await kit.events(desk))[-1].data

    await kit.commit(await handed())
    await check()
    await kit.store.apply(Fail((await handed()).lease, Reason.UNDECODABLE, "not readable"))
    assert "handoff" not in (await kit.events(desk))[-1].data
    await check()
    cut = await handed()
    await kit.store.apply(HandBack(cut.lease, "shutdown", 60.0))
    await kit.store.apply(Cancel(kit.scope, cut.head.id))
    await check()


@pytest.mark.spec("HND-3", "MSG-2")
async def test_what_is_steered_in_behind_a_handoff_shares_its_result_and_what_waits_has_its_own(kit: Kit) -> None:
    """A post to a busy session "is steered in at the next tool round or starts the next turn; never lost" (MSG-2)."""
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
    head = await kit.post(desk)
    claimed = await kit.claim(desk, seconds=0.0)
    await kit.store.apply(step(claimed, deploy))
    steered = await kit.post(desk, "steered")
    await kit.store.apply(Absorb(claimed.lease, "steer:1", 2))
    late = await kit.post(desk, "late")
    # Another owner goes on behind both.
    again = await kit.claim(desk, "another")
    assert [message.id for message in again.carried] == [steered.id]
    await kit.commit(again, "Taking you there.")
    await kit.commit(await kit.claim(desk), "Yours alone.")
    views = [await kit.message(receipt.id) for receipt in (head, steered, late)]
    assert [view.status for view in views] == [Status.DELIVERED] * 3
    assert views[0].turn_id == views[1].turn_id != views[2].turn_id
    ends = [event for event in await kit.events(desk) if event.kind in ("turn.handoff", "turn.completed")]
    assert [event.turn for event in ends] == [views[0].turn_id, views[0].turn_id, views[2].turn_id]
    assert [(entry.content, entry.handoff) for entry in (await kit.entries(desk))[-2:]] == [
        ("Taking you there.", Handoff("/ops/deploy", deploy.id, event_id=ends[0].id)),
        ("Yours alone.", None),
    ]


@pytest.mark.spec("HND-5")
async def test_a_path_that_wants_confirmation_says_so_in_the_event_and_the_result(kit: Kit) -> None:
    desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
    await kit.store.apply(set_policy(kit.scope, "/ops", confirm=True))
    await kit.post(desk)
    claimed = await kit.claim(desk)
    await kit.store.apply(step(claimed, deploy))
    await kit.commit(claimed)
    handed = next(event for event in await kit.events(desk) if event.kind == "turn.handoff")
    assert handed.data["confirm"] is True
    assert plain((await kit.entries(desk))[-1].handoff) == {
        "path": "/ops/deploy", "channel_id": deploy.id, "confirm": True, "event_id": handed.id,
    }  # fmt: skip


@pytest.mark.spec("HND-3")
async def test_the_result_outlives_restarts_the_event_that_it_names_and_the_message_that_it_answers(
    reopen: Reopen,
) -> None:
    async with reopen() as kit:
        desk, deploy = await kit.open(path="/"), await kit.open(path="/ops/deploy")
        await kit.post(desk)
        claimed = await kit.claim(desk)
        await kit.store.apply(step(claimed, deploy))
        await kit.store.apply(HandBack(claimed.lease, "shutdown"))
        handed = await kit.events(desk)
    async with reopen() as kit:
        assert await kit.events(desk) == handed, "the same event under the same id"
        await kit.commit(await kit.claim(desk, "another"))
        answer = (await kit.entries(desk))[-1]
        (number,) = given(handed)
        assert answer.handoff == Handoff("/ops/deploy", deploy.id, event_id=number)
        await kit.store.apply(PruneEvents(keep_seconds=-1))
        for _ in range(2):
            await kit.store.apply(PruneMessages(kit.scope, -1, -1))
        page = await kit.store.reads.events(kit.scope, desk.id, after=number)
        assert (page.floor >= number, given(list(page.events))) == (True, [])
        assert (await kit.entries(desk))[-1].handoff == answer.handoff
        (ended,) = [event for event in page.events if event.kind == "turn.completed"]
        assert ended.data["handoff"]["event_id"] == number
