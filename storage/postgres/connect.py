"""How a connection is opened: where to, within what time, with which settings of the session.

Here: `Target` (what a store's URL names) and `connect`. Not here: using it (`bridge.py`). Invariants: nothing blocks, names of hosts
included; no password is in any text that leaves here; a session commits durably, never waits for ever for a lock, and is ended by the
server when its process stands still within a transaction, because all others would wait for its rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import attrs
import psycopg
import trio
from psycopg import generators
from psycopg.abc import PQGenConn
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait

from ..model.errors import CallboardError, InvalidField, StoreDown, StoreError, bounded
from .bridge import Connection
from .faults import map_postgres_error

CONNECT_SECONDS: Final = 10.0
LEAST_VERSION: Final = 140_000
SHOWN_LIMIT: Final = 300

_DEFAULTS: Final[Mapping[str, str | int]] = {
    "fallback_application_name": "callboard",
    "client_encoding": "utf8",
    # A peer whose machine is gone is noticed within half a minute, not after two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SESSION: Final = """
SET default_transaction_isolation = 'read committed';
SET default_transaction_read_only = off;
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '1s';
SET idle_session_timeout = 0;
SET client_min_messages = error;
SET jit = off;
SET bytea_output = hex;
SET extra_float_digits = 1;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
# Ends the statements of a process that is gone, and so frees its rows; not every server's system has it.
_SESSION_IF_KNOWN: Final = "SET client_connection_check_interval = '1s'"


@attrs.frozen
class Target:
    """Where the database is. `shown` names it to people, without user and password."""

    shown: str
    parameters: Mapping[str, str | int] = attrs.field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Target:
        """Raises `InvalidField`, which quotes nothing of `url`: it may hold a password."""
        if not url.startswith(("postgresql://", "postgres://")):
            raise InvalidField("must be postgresql://USER@HOST:PORT/DATABASE", path="store")
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            raise InvalidField(
                "is not a valid postgresql:// URL; escape special letters with %", path="store"
            ) from None
        found = {name: value for name, value in given.items() if value is not None}
        return cls(_shown(found), {**_DEFAULTS, **found})


async def connect(target: Target, *, seconds: float = CONNECT_SECONDS) -> Connection:
    """Open a connection within `seconds`, all addresses of its hosts together.

    Raises `StoreDown` if the server does not answer in time, and the kinds of `StoreError` if it is not one to use.
    """
    with trio.move_on_after(seconds):
        error: CallboardError | None = None
        attempts = await _addresses(target)
        for attempt in attempts:
            with trio.move_on_after(seconds / len(attempts)):
                try:
                    return await _open(attempt, target.shown)
                except CallboardError as refusal:
                    error = refusal
        if error is not None:
            raise error
    raise StoreDown(f"the server does not answer within {seconds:g} s; check host, port and network", path=target.shown)


async def _open(parameters: Mapping[str, str | int], shown: str) -> Connection:
    conninfo = make_conninfo("", **parameters)
    try:
        pgconn = await _drive(generators.connect(conninfo))
    except psycopg.Error as exc:
        raise map_postgres_error(exc, shown) or StoreError(f"can't be opened ({exc})", path=shown) from exc
    connection = Connection(pgconn, shown)
    try:
        if pgconn.server_version < LEAST_VERSION:
            raise StoreError(f"PostgreSQL {LEAST_VERSION // 10_000} or newer is needed", path=shown)
        if pgconn.parameter_status(b"server_encoding") != b"UTF8":
            raise StoreError("the database's encoding is not UTF8; create it with `createdb -E UTF8`", path=shown)
        await connection.script(_SESSION)
        with suppress(psycopg.Error):  # a refusal of this one setting; a failure of the store is an error of ours
            await connection.script(_SESSION_IF_KNOWN)
    except BaseException:
        connection.close()
        raise
    return connection


async def _drive(generator: PQGenConn[PGconn]) -> PGconn:
    try:
        descriptor, wanted = next(generator)
        while True:
            if wanted == Wait.R:
                await trio.lowlevel.wait_readable(descriptor)
            else:
                await trio.lowlevel.wait_writable(descriptor)
            descriptor, wanted = generator.send(Ready.R if wanted == Wait.R else Ready.W)
    except StopIteration as end:
        return end.value


async def _addresses(target: Target) -> list[Mapping[str, str | int]]:
    """The parameters once for each address of each host: the library would look names up itself, and block everybody meanwhile."""
    given = target.parameters
    hosts = str(given.get("host") or os.environ.get("PGHOST", "")).split(",")
    if "hostaddr" in given or all(not host or host[0] in "/@" for host in hosts):
        return [given]
    ports = str(given.get("port") or os.environ.get("PGPORT", "5432")).split(",")
    found: list[Mapping[str, str | int]] = []
    for n, host in enumerate(hosts):
        own = {**given, "host": host, "port": ports[n] if len(ports) > 1 else ports[0]}
        if not host or host[0] in "/@":
            found.append(own)
            continue
        try:
            names = await trio.socket.getaddrinfo(host, None, type=trio.socket.SOCK_STREAM)
        except OSError:
            continue
        found += [{**own, "hostaddr": str(name[4][0])} for name in names]
    if not found:
        raise StoreDown("the name of its host is not known; check it and the network", path=target.shown)
    return found


def _shown(parameters: Mapping[str, str | int]) -> str:
    host, port = str(parameters.get("host", "")), parameters.get("port")
    where = "" if "/" in host else host + (f":{port}" if port else "")
    folder = f"?host={host}" if "/" in host else ""
    return bounded(f"postgresql://{where}/{parameters.get('dbname', '')}{folder}", SHOWN_LIMIT)
