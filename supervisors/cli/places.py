"""The commands on paths and rules, as people see them in `--help`. Not here: what they do (`placing`), imported when one runs."""

from __future__ import annotations

from typing import Literal

from cyclopts import App

from .arguments import ASKED, Asked

policy = App(name="policy", help="What agents may do in a project, and below a path of it.")


@policy.command(name="list")
def policy_list(*, project: str | None = None, asked: Asked = ASKED) -> int:
    """List the rules by prefix of a path, and what holds for the project. JSON: {rules, project}.

    Parameters
    ----------
    project
        Default: default.
    """
    from .placing import policy_list_command

    return policy_list_command(project, asked)


@policy.command(name="set")
def policy_set(
    prefix: str,
    *,
    edge: Literal["collaborate", "handoff_only"] | None = None,
    agents: Literal["none", "create", "rename"] | None = None,
    handoff: bool | None = None,
    confirm: bool | None = None,
    project: str | None = None,
    asked: Asked = ASKED,
) -> int:
    """Set all that is said at a prefix; what is left out comes from the prefix above, and nothing at all removes the rule.

    JSON: {rules, project}.

    Parameters
    ----------
    prefix
        A path; / is the project.
    edge
        Whether agents write to each other: collaborate, or handoff_only.
    agents
        What agents may do with paths: none, create, or rename as well.
    handoff
        Agents may hand people over there, or may not.
    confirm
        People are asked before they are taken there, or are not.
    project
        Default: default.
    """
    from .placing import policy_set_command

    given = {"prefix": prefix, "edge": edge, "agents": agents, "handoff": handoff, "confirm": confirm}
    return policy_set_command({name: value for name, value in given.items() if value is not None}, project, asked)
