"""`callboard doctor`: everything that can be said about a folder, its server and its store, and what to do about it.

Lives here: what only the folder knows (settings, the token's file, whether a server answers), putting it together with the server's own
report, printing. Not here: the questions (`doctor`).

Invariant: whatever is broken is a line of the report and never the end of it; asking changes nothing that a start of the server would not,
and no schema.
"""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import Any

import attrs
import trio

from ...actors.edges.token_file import TOKEN_FILE
from ...storage.model.errors import CallboardError, SettingsError, StoreLocked
from ...storage.sqlite.lock import SUFFIX
from ...storage.store import open_store, unapplied
from ..checks import Check, State, worst
from ..doctor import ADVISED, disk, examine_store, file_check, store_refusal, versions
from ..settings import Settings, load_settings, shown
from .announce import FILE as SERVER_FILE
from .announce import LOCK_FILE, Server, find_server
from .arguments import PROGRAM, Asked, Place
from .output import as_json, line, progress
from .refusals import refusal_in
from .remote import open_remote


@attrs.define
class Report:
    """What was found. `settings` are those of who serves, else of this folder."""

    checks: list[Check]
    processes: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    settings: dict[str, Any] = attrs.field(factory=dict[str, Any])

    def view(self) -> dict[str, Any]:
        """{state, checks, processes, settings}"""
        checks = [check.view() for check in self.checks]
        state = str(worst(self.checks))
        return {"state": state, "checks": checks, "processes": self.processes, "settings": self.settings}


def doctor_command(asked: Asked) -> int:
    """Examine and print; 1 if anything failed."""
    report, as_program = Report([]), bool(asked.json)
    try:
        settings = load_settings(asked.settings)
        as_program = settings.json
    except SettingsError as error:
        if (error.path or "").startswith("--"):
            raise
        report.checks += [versions(), Check("settings", State.FAIL, str(error), "correct it, or nothing starts")]
    else:
        with progress("examining"):
            trio.run(_examine, settings, asked, report)
    report.checks = [_to_be_typed(check, asked) for check in report.checks]
    if as_program:
        as_json(report.view())
    else:
        _print(report)
    return 1 if worst(report.checks) is State.FAIL else 0


async def _examine(settings: Settings, place: Place, report: Report) -> None:
    report.settings = shown(settings)
    report.checks += [Check("settings", State.OK, _differing(settings)), _token(settings.data), _files(settings)]
    server = find_server(settings.data)
    if server is not None and await _ask(server, settings, place, report):
        return
    if server is None:
        report.checks.append(
            Check("server", State.WARN, f"none runs for {settings.data}", f"start one: {place.command('serve')}")
        )
    report.checks.append(versions())
    report.checks += await _store(settings, place, report)


async def _ask(server: Server, settings: Settings, place: Place, report: Report) -> bool:
    """The server's own report; False if there is nobody who could make it."""
    try:
        async with open_remote(server, settings.data) as remote:
            if remote is None:
                advice = f"start it again: {place.command('serve')}; or remove {settings.data / SERVER_FILE}"
                report.checks.append(
                    Check("server", State.FAIL, f"process {server.pid} does not listen at {server.url}", advice)
                )
                return False
            answer = await remote.doctor()
            health = await remote.health()
    except (CallboardError, BaseExceptionGroup) as error:
        refusal = refusal_in(error)
        if refusal is None:
            raise
        report.checks.append(Check("server", State.FAIL, str(refusal), f"see its log; its process is {server.pid}"))
        return False
    report.checks.append(_served(server, health))
    report.checks += [Check(c["name"], State(c["state"]), c["detail"], c.get("advice", "")) for c in answer["checks"]]
    report.processes = answer["processes"]
    report.settings = answer["settings"]
    return True


def _served(server: Server, health: dict[str, Any]) -> Check:
    where = f"{server.url} (process {server.pid})"
    if health["status"] == "ok":
        return Check("server", State.OK, where)
    return Check("server", State.FAIL, f"{where} fails: {', '.join(health['failing'])}", "see its log")


def _token(folder: Path) -> Check:
    """Who may read the operator's token."""
    file = folder / TOKEN_FILE
    try:
        status = file.lstat()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return Check("token", State.OK, f"{file} is made when a server starts")
        return Check("token", State.FAIL, f"{file} can't be read: {error.strerror}", "mend the folder's permissions")
    mode = f"{file} has mode {stat.S_IMODE(status.st_mode):04o}"
    if not stat.S_ISREG(status.st_mode):
        return Check("token", State.FAIL, f"{file} is not a regular file", "remove it; the next start makes a new one")
    if status.st_mode & 0o077:
        return Check(
            "token", State.FAIL, f"{mode}: others may have read it", "remove it; the next start makes a new one"
        )
    return Check("token", State.OK, mode)


def _files(settings: Settings) -> Check:
    """Who may read what is stored. What exists is told and never changed: somebody may have meant it."""
    file = settings.store_file
    stored = [] if file is None else [file.with_name(file.name + end) for end in ("", "-wal", "-shm", SUFFIX)]
    open_to_others = [name for name in (*stored, settings.data / LOCK_FILE) if _others_reach(name)]
    if not open_to_others:
        return Check("files", State.OK, "what is stored is for this user only")
    named = ", ".join(name.name for name in open_to_others)
    advice = f"chmod 600 {shlex.join(map(str, open_to_others))}"
    return Check("files", State.WARN, f"other users of this machine may open {named}", advice)


def _others_reach(file: Path) -> bool:
    """Whether the modes of the file and of its folder let anybody else open it."""
    try:
        return bool(file.stat().st_mode & 0o066) and bool(file.parent.stat().st_mode & 0o011)
    except OSError:
        return False


def _to_be_typed(check: Check, place: Place) -> Check:
    """The same check; a command that a server advises is for where this one was asked."""
    advice = check.advice
    for words in ADVISED:
        advice = advice.replace(f"{PROGRAM} {words}", place.command(words))
    return attrs.evolve(check, advice=advice)


async def _store(settings: Settings, place: Place, report: Report) -> list[Check]:
    file = settings.store_file
    room = [] if file is None else [disk(file)]
    if file is None and not settings.on_server:
        return [file_check(None)]
    if file is not None and not file.exists():
        return [Check("store", State.WARN, f"{file} does not exist yet", f"it is made by: {place.command('serve')}")]
    try:
        waiting = unapplied(settings.store)
        if waiting:
            advice = f"{place.command('migrate')} (serve does the same)"
            place_of = Check("store", State.OK, settings.store_shown) if file is None else file_check(file)
            return [place_of, Check("schema", State.WARN, f"not applied yet: {', '.join(waiting)}", advice), *room]
        async with open_store(settings.store) as store:
            examined = await examine_store(store, serving=False)
            report.processes = examined.processes
            return [*examined.checks]
    except StoreLocked as error:
        return [
            Check("store", State.FAIL, str(error), "ask that process's folder: callboard doctor --data DIR"),
            *room,
        ]
    except CallboardError as error:
        return [store_refusal(error), *room]


def _differing(settings: Settings) -> str:
    """The settings that somebody has set, but for how this command itself was called."""
    own, plain = shown(settings), shown(Settings(data=settings.data, store=settings.store))
    changed = [f"{name} = {own[name]}" for name in own if own[name] != plain[name] and name != "json"]
    return ", ".join(changed) or "all as they come"


def _print(report: Report) -> None:
    width = max(len(check.name) for check in report.checks)
    for check in report.checks:
        line(f"{check.state:<4}  {check.name:<{width}}  {check.detail}")
        if check.advice:
            line(f"{'':<4}  {'':<{width}}  → {check.advice}")
