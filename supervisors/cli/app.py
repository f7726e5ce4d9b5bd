"""The commands and their options, as people see them in `--help`.

Not here: what they do. Everything else is imported when a command runs, as `--help` and a mistyped option must answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from .admission import console, member, token
from .arguments import ASKED, PAGED, PLACE, Asked, Flag, Number0, Paged, Place, given
from .places import policy
from .prompts import prompt


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("callboard")
    except PackageNotFoundError:
        return "unknown: this is a checkout that was not installed"


app = App(
    name="callboard",
    help="A durable actor runtime for agent sessions: accepted means recorded, recorded means exactly one committed turn.",
    version=_version,
)
sessions = App(name="sessions", help="Sessions of the running server, or of the folder's store if none runs.")
inbox = App(name="inbox", help="Messages and the stage that each is in.")
app.command(sessions)
app.command(inbox)
app.command(member)
app.command(token)
app.command(console)
app.command(prompt)
app.command(policy)


@app.command
def serve(
    *,
    store: str | None = None,
    data: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    team: str | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    json: Flag = None,
    log_level: Literal["debug", "info", "warning", "error"] | None = None,
) -> int:
    """Run a server with a team of agents, until SIGTERM or SIGINT.

    Parameters
    ----------
    store
        URL of the store: sqlite:///FILE (relative) or sqlite:////FILE (absolute). Default: DIR/callboard.db.
    data
        DIR, the folder of callboard.toml, operator.token and server.json. Default: the store's folder, else this one.
    host
        Host name or address to listen on. Default: 127.0.0.1.
    port
        Port to listen on; 0 lets the system choose. Default: 8420.
    team
        MODULE:NAME of a callboard.Team. Default: the demonstration team.
    tls_cert
        PEM file with the certificate chain; needs --tls-key.
    tls_key
        PEM file with the key.
    json
        Print one line of JSON {url, console, token_file, pid}, and logs as JSON.
    log_level
        Default: info.
    """
    settings = given(locals())

    from .serving import serve_command

    return serve_command(settings)


@app.command
def chat(path: str = "/", *, place: Place = PLACE) -> int:
    """Talk to a session of the running server. /help lists what may be typed; Ctrl-C stops the turn, then ends the chat.

    From a pipe, each line is sent when the one before it is answered; exit code 1 if a message failed.

    Parameters
    ----------
    path
        Path or id of the session.
    """
    from .chat import chat_command

    return chat_command(path, place)


@app.command
def migrate(*, asked: Asked = ASKED) -> int:
    """Bring the store's schema to this version, or make the store. `serve` does the same when it starts. JSON: {store, migrated}."""
    from .upkeep import migrate_command

    return migrate_command(asked)


@app.command
def backup(file: Path, *, force: Flag = None, asked: Asked = ASKED) -> int:
    """Make a consistent copy of the store, also while the server runs, and read it through. JSON: {file, bytes, made_at, schema}.

    Parameters
    ----------
    file
        The file to make; other users can't read it.
    force
        Replace it, if it exists.
    """
    from .backup import backup_command

    return backup_command(file, bool(force), asked)


@app.command
def restore(file: Path, *, force: Flag = None, asked: Asked = ASKED) -> int:
    """Make a backup the store of a folder in which no server runs. No id that was given out since is given out again.

    JSON: {store, made_at, schema, kept}.

    Parameters
    ----------
    file
        A file that `callboard backup` has made.
    force
        Put a store that is there aside, under the name callboard.db.before-restore-TIME.
    """
    from .backup import restore_command

    return restore_command(file, bool(force), asked)


@app.command
def doctor(*, asked: Asked = ASKED) -> int:
    """Examine the folder, its server and its store, and say what to do; exit code 1 if something fails.

    JSON: {state, checks, settings}.
    """
    from .checkup import doctor_command

    return doctor_command(asked)


@sessions.command(name="list")
def sessions_list(
    *,
    path: str | None = None,
    status: Literal["active", "idle", "recent"] = "recent",
    tree: Flag = None,
    asked: Paged = PAGED,
) -> int:
    """List sessions, newest change first. JSON: {sessions, has_more, next}; with --tree {entries}.

    Parameters
    ----------
    path
        Only the session at this path, or that was there until it was renamed.
    status
        active: a turn runs, or a child; idle; or recent: all.
    tree
        All that have a path, as a tree, whatever else is asked for.
    """
    if tree:
        from .placing import sessions_tree_command

        return sessions_tree_command(asked)
    from .listings import sessions_list_command

    return sessions_list_command(path, status, asked)


@sessions.command(name="rename")
def sessions_rename(session: str, path: str | None = None, *, title: str | None = None, asked: Asked = ASKED) -> int:
    """Give a session another path or title. Its id stays, and the old path leads to it for 30 days. JSON: the session.

    Parameters
    ----------
    session
        Path or id.
    path
        The new path.
    title
        The new title; an empty one takes it away.
    """
    from .placing import sessions_rename_command

    return sessions_rename_command(session, path, title, asked)


@sessions.command(name="read")
def sessions_read(session: str, *, after: Number0 = 0, asked: Asked = ASKED) -> int:
    """Print a session's transcript. JSON: {entries}.

    Parameters
    ----------
    session
        Path or id.
    after
        Only entries above this number.
    """
    from .listings import sessions_read_command

    return sessions_read_command(session, after, asked)


@sessions.command(name="send")
def sessions_send(
    session: str,
    text: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    message_id: str | None = None,
    asked: Asked = ASKED,
) -> int:
    """Post a message; done once it is a committed row. Without a server it waits for the next `callboard serve`.

    JSON: {message_id, created, status, seq}.

    Parameters
    ----------
    session
        Path or id.
    text
        The message; `-` reads it from standard input.
    message_id
        Makes a repeat of this command the same send.
    """
    from .listings import sessions_send_command

    return sessions_send_command(session, text, message_id, asked)


@sessions.command(name="stop")
def sessions_stop(session: str, *, drop_queued: Flag = None, asked: Asked = ASKED) -> int:
    """Stop the turn that a session runs. JSON: {status}.

    Parameters
    ----------
    session
        Path or id.
    drop_queued
        Fail the messages that wait behind it.
    """
    from .listings import sessions_stop_command

    return sessions_stop_command(session, bool(drop_queued), asked)


@inbox.command(name="list")
def inbox_list(
    *,
    target: str | None = None,
    status: Literal["pending", "processing", "delivered", "failed"] | None = None,
    peer: str | None = None,
    before: str | None = None,
    asked: Paged = PAGED,
) -> int:
    """List messages, newest first. JSON: {messages, has_more, next}.

    Parameters
    ----------
    target
        Only those to this session (path or id).
    status
        Only those in this state.
    peer
        Only those to or from this peer.
    before
        Only those accepted before this time (RFC 3339, such as 2030-01-31T12:00:00Z).
    """
    from .listings import inbox_list_command

    return inbox_list_command(target, status, peer, before, asked)


@inbox.command(name="prune")
def inbox_prune(*, older_than: str, project: str | None = None, asked: Asked = ASKED) -> int:
    """Forget the bodies of messages that are final; transcripts stay, and for 90 days a repeated send is still known.

    JSON: {blanked, deleted}.

    Parameters
    ----------
    older_than
        How long ago they ended, such as 30d (s, m, h, d or w).
    project
        The project. Default: default.
    """
    from .retention import inbox_prune_command

    return inbox_prune_command(older_than, project, asked)


def _inbox_command(name: str, help: str) -> None:
    """The three commands on one message differ in nothing but what they do with it."""

    def command(
        message: Annotated[str, Parameter(help="Message id, or the id msg_….")], *, asked: Asked = ASKED
    ) -> int:
        from .messages import inbox_message_command

        return inbox_message_command(name, message, asked)

    inbox.command(command, name=name, help=help)


_inbox_command("show", "Show a message with its stages and the history of its attempts.")
_inbox_command(
    "requeue", "Accept a delivered or failed message again, as a new one; a repeat tells which one that was."
)
_inbox_command("cancel", "Fail a message that still waits.")
