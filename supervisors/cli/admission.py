"""The commands about who may come in, as people see them in `--help`. Not here: what they do (`access`), imported when one runs."""

from __future__ import annotations

from cyclopts import App

from .arguments import ASKED, PAGED, Asked, Flag, Paged

member = App(name="member", help="People who may use projects, beside the operator.")
token = App(name="token", help="Tokens for programs and people; of browsers, the cookies.")


@member.command(name="add")
def member_add(name: str, *, project: str | None = None, asked: Asked = ASKED) -> int:
    """Give a member a project; both are made on first use. JSON: {name, projects, created, suspended}.

    Parameters
    ----------
    name
        The member's name: [a-z0-9][a-z0-9._-]*.
    project
        Default: default.
    """
    from .access import member_add_command

    return member_add_command(name, project, asked)


@member.command(name="suspend")
def member_suspend(name: str, *, undo: Flag = None, asked: Asked = ASKED) -> int:
    """Shut a member out of everything, until it is undone. Open streams end within half a minute.

    JSON: {name, projects, created, suspended}.

    Parameters
    ----------
    name
        The member's name.
    undo
        Let them in again.
    """
    from .access import member_suspend_command

    return member_suspend_command(name, not undo, asked)


@member.command(name="list")
def member_list(*, asked: Paged = PAGED) -> int:
    """List members by name. JSON: {members, has_more, next}."""
    from .access import member_list_command

    return member_list_command(asked)


@token.command(name="create")
def token_create(
    *, member: str | None = None, project: str | None = None, label: str = "", asked: Asked = ASKED
) -> int:
    """Make a token and print it, this once. Without a member and a project it is good for everything. JSON: {token, id}.

    Parameters
    ----------
    member
        It stands for this member.
    project
        It is good for this project alone.
    label
        What it is for, shown in listings.
    """
    from .access import token_create_command

    return token_create_command(member, project, label, asked)


@token.command(name="list")
def token_list(*, asked: Paged = PAGED) -> int:
    """List tokens and browsers' cookies, newest first; never their secrets. JSON: {tokens, has_more, next}."""
    from .access import token_list_command

    return token_list_command(asked)


@token.command(name="revoke")
def token_revoke(id: str, *, asked: Asked = ASKED) -> int:
    """Make a token good for nothing, with every cookie that came from it; or one cookie. JSON: what is known of it.

    Parameters
    ----------
    id
        Its id: tok_… or cok_….
    """
    from .access import token_revoke_command

    return token_revoke_command(id, asked)


def console(*, member: str | None = None, asked: Asked = ASKED) -> int:
    """Print a link to the console of the running server. It can be used once, within ten minutes. JSON: {console, expires}.

    Parameters
    ----------
    member
        It lets this member in. Default: the operator.
    """
    from .access import console_command

    return console_command(member, asked)
