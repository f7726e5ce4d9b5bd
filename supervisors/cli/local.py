"""The store itself, opened for one command while no server runs. No turn is run: what is sent waits for the next `serve`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, redirect_stdout
from datetime import datetime
from typing import Any, Final

import trio

from ...actors.desk import Desk
from ...actors.edges.routes.namespace import NewRule
from ...actors.edges.views import (
    credential_view,
    entry_view,
    history_view,
    inbox_view,
    member_view,
    message_view,
    place_view,
    pruned_view,
    receipt_view,
    rules_view,
    session_view,
    steered_view,
)
from ...actors.namespace.directory import directory
from ...storage.model.access import check_member_name, check_project, digest, new_secret
from ...storage.model.addresses import Scope, check_path
from ...storage.model.errors import InvalidField, NotFound
from ...storage.model.ids import keyed_id
from ...storage.model.limits import PAGE_LIMIT
from ...storage.ops import AddMember, RevokeCredential, SuspendMember
from ...storage.ops.access import issue_token
from ...storage.store import Store, open_store
from ...storage.wire import structure
from ..runtime import OPERATOR
from ..settings import Settings
from .board import Json, check_session, requeue_key

SCOPE: Final = Scope()


class _NoTasks:
    """What a desk is given to start tasks with where there are none: nothing here follows a session."""

    def start(
        self, name: str, fn: Callable[..., Awaitable[object]], /, *args: Any, scope: trio.CancelScope | None = None
    ) -> None:
        raise RuntimeError(f"{name} can't be started: no runtime is here")


class Local:
    """A `Board` over an open store."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._settings = settings
        self._desk = Desk(store, (), _NoTasks(), settings.tuning)
        self._reads = store.reads
        self._store = store

    async def sessions(self, **filters: Any) -> Json:
        path, status = filters["path"], filters["status"]
        path = None if path is None else check_path(path)
        page = await self._reads.sessions(
            SCOPE,
            path=path,
            active=status == "active",
            idle=status == "idle",
            limit=filters["limit"],
            cursor=filters["cursor"],
        )
        found = [session_view(item, asked=path) for item in page.items]
        return {"sessions": found, "has_more": page.has_more, "next": page.next}

    async def directory(self, cursor: str | None) -> Json:
        page = await directory(self._desk, SCOPE, cursor=cursor)
        return {"entries": [place_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}

    async def rename(self, session: str, path: str | None, title: str | None) -> Json:
        known = await self.session(session)
        if path is None and title is None:
            raise InvalidField("or path is required", path="title")
        return session_view(await self._desk.rename(SCOPE, known, title, path=path))

    async def policy(self, project: str | None) -> Json:
        return rules_view(await self._reads.rules(_of(project)), self._desk.tuning.edge)

    async def set_policy(self, rule: Json, project: str | None) -> Json:
        op = structure(rule, NewRule).op(_of(project))
        return rules_view(await self._store.apply(op), self._desk.tuning.edge)

    async def session(self, session: str) -> str:
        return (await self._desk.find(SCOPE, check_session(session))).id

    async def transcript(self, session: str, *, after: int = 0, limit: int | None = None) -> Json:
        known, found = await self.session(session), list[Json]()
        while True:
            page = await self._reads.transcript(SCOPE, known, after=after, limit=limit or PAGE_LIMIT)
            found += [entry_view(entry) for entry in page]
            if limit is not None or len(page) < PAGE_LIMIT:
                return {"entries": found}
            after = page[-1].seq

    async def send(self, session: str, content: str, message_id: str | None) -> Json:
        known = await self.session(session)
        return receipt_view(await self._desk.send(SCOPE, known, content, OPERATOR, message_id=message_id))

    async def stop(self, session: str, *, drop_queued: bool) -> Json:
        await self._desk.stop(SCOPE, await self.session(session), drop_queued=drop_queued)
        return {"status": "stopping"}

    async def inbox(self, **filters: Any) -> Json:
        target = filters["target"]
        page = await self._reads.inbox(
            SCOPE,
            target=None if target is None else await self.session(target),
            status=filters["status"],
            peer=filters["peer"],
            before=_time(filters["before"]),
            limit=filters["limit"],
            cursor=filters["cursor"],
        )
        return {"messages": [inbox_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}

    async def message(self, message: str) -> Json:
        view = await self._desk.receipt(SCOPE, message, principal=OPERATOR.principal)
        history = history_view(await self._reads.attempts(SCOPE, view.id))
        steered = await self._desk.steered_round(SCOPE, view)
        return {**message_view(view), "history": history, **steered_view(steered)}

    async def prompt(self, session: str) -> Json:
        # Imported here, as no other command needs agents.
        from ...actors.session.agents.base import agents_from, purposes_of
        from ...actors.session.prompt.report import report
        from ..demo import team_of

        # What a team's modules print must not become part of the answer.
        with redirect_stdout(sys.stderr):
            agents = agents_from(team_of(self._settings).agents)
        desk = Desk(self._store, agents.keys(), _NoTasks(), self._settings.tuning, purposes=purposes_of(agents))
        return await report(desk, agents, await desk.find(SCOPE, check_session(session)))

    async def requeue(self, message: str) -> Json:
        principal = OPERATOR.principal
        known = (await self._desk.receipt(SCOPE, message, principal=principal)).id
        # As the server makes it of the same key, so that a repeat is one whoever answers.
        new_id = keyed_id("msg", SCOPE.tenant, SCOPE.project, principal, "requeue", requeue_key(known))
        return receipt_view(await self._desk.requeue(SCOPE, known, principal=principal, new_id=new_id))

    async def cancel(self, message: str) -> Json:
        return message_view(await self._desk.cancel(SCOPE, message, principal=OPERATOR.principal))

    async def prune(self, older_than_seconds: float, project: str | None) -> Json:
        return pruned_view(await self._desk.prune(_of(project), older_than_seconds))

    async def members(self, **filters: Any) -> Json:
        page = await self._store.access.members(SCOPE.tenant, **filters)
        return {"members": [member_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}

    async def add_member(self, name: str, project: str | None) -> Json:
        return member_view(await self._store.apply(AddMember(_of(project), check_member_name(name))))

    async def suspend_member(self, name: str, *, suspended: bool) -> Json:
        return member_view(await self._store.apply(SuspendMember(SCOPE.tenant, name, suspended)))

    async def tokens(self, **filters: Any) -> Json:
        page = await self._store.access.credentials(SCOPE.tenant, **filters)
        return {"tokens": [credential_view(item) for item in page.items], "has_more": page.has_more, "next": page.next}

    async def create_token(self, member: str | None, project: str | None, label: str) -> Json:
        secret = new_secret()
        op = issue_token(SCOPE, digest(secret), member=member, project=project, label=label)
        return {"token": secret, **credential_view(await self._store.apply(op))}

    async def revoke_token(self, id: str) -> Json:
        return credential_view(await self._store.apply(RevokeCredential(SCOPE.tenant, id)))

    async def console_ticket(self, member: str | None) -> Json:
        raise NotFound("no server runs here that could show a console")


@asynccontextmanager
async def open_local(settings: Settings) -> AsyncIterator[Local]:
    """Open the store and run it while the block lasts. Raises `StoreLocked` with its owner, and the other kinds of `StoreError`."""
    async with open_store(settings.store) as store, trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield Local(store, settings)
        nursery.cancel_scope.cancel()


def _of(project: str | None) -> Scope:
    return SCOPE if project is None else Scope(SCOPE.tenant, check_project(project))


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise ValueError("no offset")
        return at.timestamp()
    except (ValueError, OverflowError):
        raise InvalidField("must be a time as RFC 3339 has it", path="before") from None
