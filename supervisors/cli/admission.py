"""The commands about who may come in, as people see them in `--help`. Not here: what they do (`access`), imported when one runs."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from .arguments import Flag, Limit, given

member = App(name="member", help="People who may use projects, beside the operator.")
token = App(name="token", help="Tokens for programs and people; of browsers, the cookies.")


@member.command(name="add")
def member_add(
    name: str,
    *,
    project: str | None = None,
    data: Path | None = None,
    store: str | None = None,
    json: Flag = None,
) -> int:
    """Give a member a project; both are made on first use.

    Parameters
    ----------
    name
        The member's name: [a-z0-9][a-z0-9._-]*.
    project
        Default: default.
    data
        The server's folder. Default: this one.
    store
        The store, where it is not DIR/callboard.db.
    json
        Print {name, projects, created, suspended} as JSON.
    """
    from .access import member_add_command

    return member_add_command(name, project, given({"data": data, "store": store, "json": json}))


@member.command(name="suspend")
def member_suspend(
    name: str, *, undo: Flag = None, data: Path | None = None, store: str | None = None, json: Flag = None
) -> int:
    """Shut a member out of everything, until it is undone. Open streams end within half a minute.

    Parameters
    ----------
    name
        The member's name.
    undo
        Let them in again.
    data
        The server's folder. Default: this one.
    store
        The store, where it is not DIR/callboard.db.
    json
        Print {name, projects, created, suspended} as JSON.
    """
    from .access import member_suspend_command

    return member_suspend_command(name, not undo, given({"data": data, "store": store, "json": json}))


@member.command(name="list")
def member_list(
    *,
    limit: Limit = 50,
    cursor: str | None = None,
    data: Path | None = None,
    store: str | None = None,
    json: Flag = None,
) -> int:
    """List members by name.

    Parameters
    ----------
    limit
        At most this many, 1 to 200.
    cursor
        Go on from the `next` of an earlier listing.
    data
        The server's folder. Default: this one.
    store
        The store, where it is not DIR/callboard.db.
    json
        Print {members, has_more, next} as JSON.
    """
    from .access import member_list_command

    return member_list_command(limit, cursor, given({"data": data, "store": store, "json": json}))


@token.command(name="create")
def token_create(
    *,
    member: str | None = None,
    project: str | None = None,
    label: str = "",
    data: Path | None = None,
    store: str | None = None,
    json: Flag = None,
) -> int:
    """Make a token and print it, this once. Without a member and a project it is good for everything.

    Parameters
    ----------
    member
        It stands for this member.
    project
        It is good for this project alone.
    label
        What it is for, shown in listings.
    data
        The server's folder. Default: this one.
    store
        The store, where it is not DIR/callboard.db.
    json
        Print {token, id} as JSON.
    """
    from .access import token_create_command

    return token_create_command(member, project, label, given({"data": data, "store": store, "json": json}))


@token.command(name="list")
def token_list(
    *,
    limit: Limit = 50,
    cursor: str | None = None,
    data: Path | None = None,
    store: str | None = None,
    json: Flag = None,
) -> int:
    """List tokens and browsers' cookies, newest first; never their secrets.

    Parameters
    ----------
    limit
        At most this many, 1 to 200.
    cursor
        Go on from the `next` of an earlier listing.
    data
        The server's folder. Default: this one.
    store
        The store, where it is not DIR/callboard.db.
    json
        Print {tokens, has_more, next} as JSON.
    """
    from .access import token_list_command

    return token_list_command(limit, cursor, given({"data": data, "store": store, "json": json}))


@token.command(name="revoke")
def token_revoke(id: str, *, data: Path | None = None, store: str | None = None, json: Flag = None) -> int:
    """Make a token good for nothing, with every cookie that came from it; or one cookie.

    Parameters
    ----------
    id
        Its id: tok_… or cok_….
    data
        The server's folder. Default: this one.
    store
        The store, where it is not DIR/callboard.db.
    json
        Print what is known of it as JSON.
    """
    from .access import token_revoke_command

    return token_revoke_command(id, given({"data": data, "store": store, "json": json}))


def console(*, member: str | None = None, data: Path | None = None, store: str | None = None, json: Flag = None) -> int:
    """Print a link to the console of the running server. It can be used once, within ten minutes.

    Parameters
    ----------
    member
        It lets this member in. Default: the operator.
    data
        The server's folder. Default: this one.
    store
        The server's store, where its folder is the store's.
    json
        Print {console, expires} as JSON.
    """
    from .access import console_command

    return console_command(member, given({"data": data, "store": store, "json": json}))
