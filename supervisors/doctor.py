"""What is examined, and what to do about what is found: one `Check` a question.

Lives here: questions about a store, its file, the machine and a running tree. Not here: who works on a store (`fleet`), who asks (`attendant`
for a server, the command line where none runs), settings and token files of a folder.

Invariant: examining changes nothing, and a check holds names, ids and figures, never text that anybody wrote, nor a secret.
"""

from __future__ import annotations

import platform
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any, Final

import attrs

from ..storage.model.errors import CallboardError
from ..storage.store import Store
from ..storage.wire import rfc3339
from .checks import Check, State
from .fleet import Fleet, fleet_of
from .metrics import installed
from .tree import Node

MIB: Final = 1024 * 1024
LOG_MOST: Final = 256 * MIB
"""Of the write-ahead log: it grows only while somebody reads one old snapshot for long."""
DISK_WARN, DISK_FAIL = 1024 * MIB, 100 * MIB
CLOCK_WARN: Final = 5.0
QUEUE_WARN: Final = 5_000
RESTORED_WARN: Final = 7 * 86_400.0
"""How long after a restore it is warned of what that has brought back."""
PRUNE: Final = "inbox prune --older-than 30d"
TOKENS: Final = "token list"
ADVISED: Final = (PRUNE, TOKENS)
"""The commands that are advised. Whoever prints a report says where they are to be given."""
CHECKED_MOST: Final = 256 * MIB
"""Of a database that is in use: beyond it, reading all of it would keep a reader busy for long."""


def versions() -> Check:
    """What this process runs on."""
    found = {
        "callboard": installed(),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "Trio": installed("trio"),
    }
    return Check("versions", State.OK, ", ".join(f"{name} {number}" for name, number in found.items()))


@attrs.frozen
class Examined:
    """What was found out about a store; `fleet` is None if it could not be read."""

    checks: tuple[Check, ...]
    fleet: Fleet | None = None

    @property
    def processes(self) -> list[dict[str, Any]]:
        """See `Fleet.view`."""
        return [] if self.fleet is None else self.fleet.view()


async def examine_store(store: Store, *, serving: bool) -> Examined:
    """Everything about an open store; `serving`: turns are run, so nothing should wait for long."""
    file = store.file
    try:
        checks = [_place(store), await _schema(store), await _integrity(store, file, serving=serving)]
        fleet = await fleet_of(store)
        checks += restored(await store.reads.restored(), store.now())
    except CallboardError as error:
        return Examined((store_refusal(error),))
    checks += [*fleet.checks(serving=serving), clock(store.now(), time.time(), shared=store.shared)]
    if file is not None:
        checks.append(disk(file))
    return Examined(tuple(checks), fleet)


def _place(store: Store) -> Check:
    return Check("store", State.OK, store.name) if store.shared else file_check(store.file)


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


def restored(found: tuple[float, float | None] | None, now: float) -> list[Check]:
    """Whether it was restored from a backup: what was revoked since that was made holds no longer."""
    if found is None:
        return []
    at, made_at = found
    detail = f"restored {rfc3339(at)} from a backup of {rfc3339(made_at) if made_at else 'unknown age'}"
    if now - at > RESTORED_WARN:
        return [Check("restored", State.OK, detail)]
    advice = f"tokens revoked and members suspended in between are valid again: look through callboard {TOKENS}"
    return [Check("restored", State.WARN, detail, advice)]


def clock(store_time: float, wall: float, *, shared: bool = False) -> Check:
    """Store time never goes back, so a clock that was set back leaves it ahead. A store that is `shared` goes by its server's."""
    ahead = store_time - wall
    detail = f"store time is {abs(ahead):.1f} s {'ahead of' if ahead >= 0 else 'behind'} the system's"
    if abs(ahead) <= CLOCK_WARN:
        return Check("clock", State.OK, detail)
    set_back = "the system's clock was set; times shown are off by this until a restart, or it has caught up"
    differ = "set the clocks of this machine and of the database's by one source; leases go by the database's alone"
    return Check("clock", State.WARN, detail, differ if shared else set_back)


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
