"""What is examined, and what to do about what is found: one `Check` a question.

Lives here: questions about a store, its file, the machine and a running tree. Not here: who asks (`attendant` for a server, the command line
where none runs), settings and token files of a folder.

Invariant: examining changes nothing, and a check holds names, ids and figures, never text that anybody wrote, nor a secret.
"""

from __future__ import annotations

import platform
import shutil
import sqlite3
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import attrs

from ..storage.model.errors import CallboardError
from ..storage.store import Store
from .metrics import Load, installed, load_of
from .tree import Node

MIB: Final = 1024 * 1024
LOG_MOST: Final = 256 * MIB
"""Of the write-ahead log: it grows only while somebody reads one old snapshot for long."""
DISK_WARN, DISK_FAIL = 1024 * MIB, 100 * MIB
LAG_WARN, LAG_FAIL = 5.0, 60.0
"""Seconds that a mailbox waits while a server runs."""
CLOCK_WARN: Final = 5.0
QUEUE_WARN: Final = 5_000
PRUNE: Final = "inbox prune --older-than 30d"
"""The command that makes room. Whoever prints a report says where it is to be given."""
CHECKED_MOST: Final = 256 * MIB
"""Of a database that is in use: beyond it, reading all of it would keep a reader busy for long."""


class State(StrEnum):
    """How bad it is; `fail` needs somebody to act."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@attrs.frozen
class Check:
    """One answer; `advice` says what to do, where something is to be done."""

    name: str
    state: State
    detail: str
    advice: str = ""

    def view(self) -> dict[str, Any]:
        """{name, state, detail, advice?}"""
        view = {"name": self.name, "state": str(self.state), "detail": self.detail}
        return {**view, "advice": self.advice} if self.advice else view


def worst(checks: Iterable[Check]) -> State:
    """The state of the whole."""
    states = {check.state for check in checks}
    return State.FAIL if State.FAIL in states else State.WARN if State.WARN in states else State.OK


def versions() -> Check:
    """What this process runs on."""
    found = {
        "callboard": installed(),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "Trio": installed("trio"),
    }
    return Check("versions", State.OK, ", ".join(f"{name} {number}" for name, number in found.items()))


async def examine_store(store: Store, file: Path | None, *, serving: bool) -> list[Check]:
    """Everything about an open store; `serving`: turns are run, so nothing should wait for long."""
    try:
        checks = [file_check(file), await _schema(store), await _integrity(store, file, serving=serving)]
        load = await load_of(store)
        checks += [leases(load), lag(load, serving=serving), stuck(await store.reads.stuck())]
    except CallboardError as error:
        return [store_refusal(error)]
    return [*checks, clock(store.now(), time.time()), *([disk(file)] if file is not None else [])]


def store_refusal(error: CallboardError) -> Check:
    """A store that can't be used says itself what to do."""
    return Check("store", State.FAIL, str(error), "until then nothing can be accepted")


def file_check(file: Path | None) -> Check:
    """The database's file and its log."""
    if file is None:
        return Check("store", State.WARN, "in memory: all is gone when the process ends", "give serve a --store")
    size, log = _size(file), _size(file.with_name(file.name + "-wal"))
    detail = f"{file}, {_bytes(size)}, log {_bytes(log)}"
    if log > LOG_MOST:
        return Check(
            "store", State.WARN, detail, "the log shrinks when nobody reads for long; restart the server if it does not"
        )
    return Check("store", State.OK, detail)


def leases(load: Load) -> Check:
    """How many mailboxes are held."""
    return Check("leases", State.OK, f"{load.held} held")


def lag(load: Load, *, serving: bool) -> Check:
    """Whether what is due is taken."""
    detail = f"{load.due} due" + (f", one for {load.lag:.1f} s" if load.due else "")
    if not serving:
        return Check("lag", State.OK, detail + (", until the next start of a server" if load.due else ""))
    state = State.FAIL if load.lag > LAG_FAIL else State.WARN if load.lag > LAG_WARN else State.OK
    advice = (
        ""
        if state is State.OK
        else "turns are not taken as fast as they come: see the tree, and live_turns in the settings"
    )
    return Check("lag", state, detail, advice)


def stuck(rows: list[tuple[str, str]]) -> Check:
    """Sessions whose agent survived its cancel."""
    if not rows:
        return Check("stuck", State.OK, "no session is stuck")
    names = ", ".join(recipient.removeprefix("session:") for recipient, _ in rows[:10])
    advice = "their agents ignore being cancelled; mend them, then restart the server"
    return Check("stuck", State.WARN, f"{len(rows)} stuck: {names}", advice)


def clock(store_time: float, wall: float) -> Check:
    """Store time never goes back, so a clock that was set back leaves it ahead."""
    ahead = store_time - wall
    detail = f"store time is {abs(ahead):.1f} s {'ahead of' if ahead >= 0 else 'behind'} the system's"
    if abs(ahead) <= CLOCK_WARN:
        return Check("clock", State.OK, detail)
    return Check(
        "clock",
        State.WARN,
        detail,
        "the system's clock was set; times shown are off by this until a restart, or it has caught up",
    )


def disk(file: Path) -> Check:
    """Room beside the file."""
    usage = shutil.disk_usage(file.parent)
    state = State.FAIL if usage.free < DISK_FAIL else State.WARN if usage.free < DISK_WARN else State.OK
    advice = "" if state is State.OK else f"make room, or prune: callboard {PRUNE}"
    return Check("disk", state, f"{_bytes(usage.free)} free of {_bytes(usage.total)}", advice)


def tree(root: Node) -> Check:
    """Whether all parts run, and which did not all the time."""
    down = [node.name for node in root.children if node.state not in ("running", "stopping")]
    again = [f"{node.name} {node.restarts}×" for node in root.children if node.restarts]
    detail = f"{len(root.children)} parts" + (f", started anew: {', '.join(again)}" if again else "")
    if down:
        return Check(
            "tree", State.FAIL, f"not running: {', '.join(down)}", "they are started again; the log says why they ended"
        )
    return (
        Check("tree", State.WARN, detail, "the log says why")
        if again
        else Check("tree", State.OK, f"{detail}, all running")
    )


def queue(depth: int) -> Check:
    """Writes that wait for a transaction."""
    if depth < QUEUE_WARN:
        return Check("queue", State.OK, f"{depth} writes wait")
    return Check("queue", State.WARN, f"{depth} writes wait", "the disk is slower than what comes in")


async def _schema(store: Store) -> Check:
    return Check("schema", State.OK, f"version {await store.reads.schema()}")


async def _integrity(store: Store, file: Path | None, *, serving: bool) -> Check:
    size = 0 if file is None else _size(file)
    if serving and size > CHECKED_MOST:
        detail = f"not read through: {_bytes(size)} are in use"
        return Check("integrity", State.OK, detail + "; stop the server and ask again to have it done")
    found = await store.reads.integrity()
    if found == "ok":
        return Check("integrity", State.OK, "the database finds nothing wrong with itself")
    return Check("integrity", State.FAIL, found.splitlines()[0][:300], "stop the server and restore a backup")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
