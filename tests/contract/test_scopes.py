"""Projects are walls: no read of one ever gives a row of another (NS-5, SES-2)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from callboard.storage.model.addresses import Scope, session_address
from callboard.storage.model.errors import NotFound, UnknownTarget
from callboard.storage.model.messages import Kind
from callboard.storage.model.turns import StepKind, Summary
from callboard.storage.ops import (
    DeleteSession,
    EmitTokens,
    Navigate,
    RecordStep,
    RequestApproval,
    RequestStop,
    Retry,
    UpdateSession,
)
from callboard.storage.ops.namespace import set_policy
from callboard.storage.reads import Reads

if TYPE_CHECKING:
    from conftest import Kit

UNSCOPED = {
    "counts", "integrity", "moved", "oldest_due", "oldest_open", "processes", "restored", "run_out", "schema", "stuck",
}  # fmt: skip
"""What the runtime itself asks: numbers and addresses over all scopes, never text."""
IDS_OR_FIGURES = {"stop_of", "turn_goes_on", "approval", "navigation", "places_count", "project_known", "queued"}
"""What a scope is told without any text of its."""


async def test_every_read_takes_a_scope_but_those_of_the_runtime() -> None:
    for name, read in inspect.getmembers(Reads, inspect.isfunction):
        if not name.startswith("_"):
            assert ("scope" in inspect.signature(read).parameters) == (name not in UNSCOPED), name


@pytest.mark.spec("NS-5", "SES-2")
@pytest.mark.parametrize("which", [0, 1, 2], ids=["other project", "other tenant", "unknown"])
async def test_a_row_of_another_project_answers_as_unknown(
    kit: Kit, other_scopes: tuple[Scope, Scope], which: int
) -> None:
    stranger = (*other_scopes, Scope("never", "used"))[which]
    for scope in other_scopes:
        await kit.open(scope=scope)
    session = await kit.open(path="/secret", title="secret")
    receipt = await kit.post(session, "secret", message_id="m-1")
    claimed = await kit.claim(session)
    await kit.store.apply(RecordStep(claimed.lease, "round:0", StepKind.ROUND, 0, True, {"secret": 1}))
    summed_up = Summary(1, "secret")
    await kit.store.apply(RecordStep(claimed.lease, "summary:1", StepKind.ROUND, 0, True, {}, "", summary=summed_up))
    await kit.store.apply(EmitTokens(claimed.lease, 1, "secret"))
    await kit.store.apply(RequestApproval(claimed.lease, "apr_1", "call:0", "secret", {}))
    await kit.store.apply(RequestStop(kit.scope, session_address(session.id)))
    await kit.store.apply(Retry(claimed.lease, "secret", 0))
    await kit.claim(session)
    await kit.post(session, "waits", kind=Kind.NOTICE)
    await kit.open(parent=session.id, title="secret")
    await kit.store.apply(set_policy(kit.scope, "/secret", confirm=True))
    await kit.store.apply(UpdateSession(kit.scope, session.id, path="/secret/moved"))
    await kit.store.apply(Navigate(kit.scope, "member:secret", "secret", session.id))
    turn = f"turn_{receipt.id[4:]}"

    def asked(scope: Scope) -> dict[str, Any]:
        reads = kit.store.reads
        return {
            "session": lambda: reads.session(scope, session.id),
            "session_at": lambda: reads.session_at(scope, "/secret"),
            "directory": lambda: reads.directory(scope),
            "rules": lambda: reads.rules(scope),
            "navigation": lambda: reads.navigation(scope, "member:secret", "secret"),
            "project_known": lambda: reads.project_known(scope),
            "sessions": lambda: reads.sessions(scope),
            "transcript": lambda: reads.transcript(scope, session.id),
            "transcript_tail": lambda: reads.transcript_tail(scope, session.id, 10),
            "message": lambda: reads.message(scope, receipt.id),
            "inbox": lambda: reads.inbox(scope, target=session.id),
            "approval": lambda: reads.approval(scope, "apr_1"),
            "attempts": lambda: reads.attempts(scope, receipt.id),
            "events": lambda: reads.events(scope, session.id),
            "steps": lambda: reads.steps(scope, receipt.id),
            "tokens": lambda: reads.tokens(scope, session.id, turn),
            "turn_goes_on": lambda: reads.turn_goes_on(scope, session.id, turn, after=0),
            "stop_of": lambda: reads.stop_of(scope, session.id),
            "places": lambda: reads.places(scope, "ses_other", 10),
            "places_count": lambda: reads.places_count(scope, "ses_other"),
            "children": lambda: reads.children(scope, session.id),
            "queued": lambda: reads.queued(scope, session.id),
            "summary": lambda: reads.summary(scope, session.id),
        }

    methods = {name for name, _ in inspect.getmembers(Reads, inspect.isfunction) if not name.startswith("_")}
    assert set(asked(kit.scope)) == methods - UNSCOPED, "a read that this test does not know"
    for name, ask in asked(kit.scope).items():
        found = await ask()
        assert found
        assert "secret" in repr(found) or name in IDS_OR_FIGURES, name
    for name, ask in asked(stranger).items():
        try:
            found = await ask()
        except (NotFound, UnknownTarget) as refusal:
            found = refusal
        assert "secret" not in repr(found), name
        assert session.id not in repr(found), name
        assert name not in {"stop_of", "turn_goes_on", "queued", "places_count"} or not found, name


@pytest.mark.spec("SES-2")
async def test_an_op_from_another_project_finds_nothing(kit: Kit, other_scopes: tuple[Scope, Scope]) -> None:
    session = await kit.open(title="Mine")
    await kit.post(session)
    await kit.claim(session)
    await kit.open(scope=other_scopes[0])
    before = await kit.snapshot()
    for scope in (*other_scopes, Scope("never", "used")):
        for op in (
            RequestStop(scope, session_address(session.id), drop_queued=True),
            UpdateSession(scope, session.id, "Theirs"),
            UpdateSession(scope, session.id, path="/theirs"),
            Navigate(scope, "member:eve", "tab", session.id),
            DeleteSession(scope, session.id, kit.ann),
        ):
            with pytest.raises(UnknownTarget):
                await kit.store.apply(op)
    assert await kit.snapshot() == before


async def test_a_worker_serves_every_project_and_knows_which_it_is_in(
    kit: Kit, other_scopes: tuple[Scope, Scope]
) -> None:
    expected: dict[str, Scope] = {}
    for scope in (kit.scope, *other_scopes):
        session = await kit.open(scope=scope, path="/desk")
        await kit.post(session)
        expected[session.id] = scope
    assert {claimed.session: claimed.scope for claimed in await kit.claims()} == expected
