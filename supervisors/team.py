"""A team: the agents that a server runs and the sessions that it opens for them.

Lives here: the value, finding it by MODULE:NAME, opening its sessions. Not here: any team.
Invariant: a `Team` that exists can be run: its agents are agents, its paths canonical.
"""

from __future__ import annotations

import difflib
import importlib
import logging
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..actors.session.agents.base import agents_from
from ..storage.model.addresses import check_path
from ..storage.model.errors import InvalidField, PathTaken, SettingsError
from .settings import is_team_name, working_folder

if TYPE_CHECKING:
    from .runtime import Runtime

log: Final = logging.getLogger("callboard.team")
ROOT: Final = "/"


@attrs.frozen
class Team:
    """`agents` by name, as `open_runtime` takes them; `sessions` maps paths to names of agents.

    The first agent is the project's default: it has the session at `/`, named or not. Raises `InvalidField`.
    """

    agents: Mapping[str, Any]
    sessions: Mapping[str, str] = attrs.field(factory=dict[str, str])

    def __attrs_post_init__(self) -> None:
        for field in ("agents", "sessions"):
            if not isinstance(getattr(self, field), Mapping):
                raise InvalidField("must be a mapping", path=field)
        agents_from(self.agents)
        for path, agent in self.sessions.items():
            check_path(path, f"sessions.{path}")
            if agent not in self.agents:
                known = ", ".join(self.agents)
                raise InvalidField(
                    f"no agent of the team is called {agent!r}; there are {known}", path=f"sessions.{path}"
                )
        if self.sessions.get(ROOT, self.default) != self.default:
            raise InvalidField(f"the session / has the first agent, {self.default}", path="sessions./")

    @property
    def default(self) -> str:
        """The name of the project's default agent."""
        return next(iter(self.agents))

    @property
    def places(self) -> dict[str, str]:
        """Every session to open, by path, `/` first."""
        return {ROOT: self.default, **self.sessions}


async def open_places(runtime: Runtime, team: Team) -> None:
    """Open every session of the team, or find it, wherever it was renamed to.

    Where people have given a path to a session of another agent, that stays, and is said: a rename must not keep a server from starting.
    Raises `PathTaken` if `/`, which can't be renamed, has another agent: the store is another team's.
    """
    for path, agent in team.places.items():
        try:
            await runtime.open_session(agent=agent, path=path)
        except PathTaken as taken:
            if path == ROOT:
                raise
            log.warning("the team's session %s is not opened: %s", path, taken.message)


def load_team(name: str, *, folder: Path | None = None) -> Team:
    """Import the team that `MODULE:NAME` names; modules are looked for in `folder` (the current one) first.

    The folder stays importable, as the team's own modules may import more while it runs. Raises `SettingsError` with the cause in one line.
    """
    if not is_team_name(name):
        raise SettingsError(f"must be MODULE:NAME, not {name!r}", path="team")
    module, _, attribute = name.partition(":")
    here = str((folder or working_folder()).absolute())
    if here not in sys.path:
        sys.path.insert(0, here)
    imported = _imported(module, here)
    try:
        team = _attribute(imported, module, attribute)
    except SettingsError:
        raise
    # A module may have a `__getattr__`, and objects whose class is a property.
    except Exception as error:
        raise _broken(module, here, error) from error
    if not isinstance(team, Team):
        raise SettingsError(f"{name} is a {type(team).__name__}, not a callboard.Team", path="team")
    return team


def _imported(module: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module + ".").startswith(error.name + "."):
            raise SettingsError(
                f"there is no module {error.name} in {here} or on the Python path", path="team"
            ) from None
        raise _broken(module, here, error) from error
    # A module that is a script without a guard ends with SystemExit, which would end us without a word.
    except (Exception, SystemExit) as error:
        raise _broken(module, here, error) from error


def _broken(module: str, here: str, error: BaseException) -> SettingsError:
    """The user's own mistake, with the last line of theirs that led to it."""
    what = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}, line {error.lineno})"
    else:
        theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
        where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return SettingsError(f"the module {module} could not be imported: {what}{where}", path="team")


def _attribute(module: ModuleType, name: str, attribute: str) -> object:
    if hasattr(module, attribute):
        return getattr(module, attribute)
    teams = [key for key, value in vars(module).items() if isinstance(value, Team)]
    near = difflib.get_close_matches(attribute, teams, n=1) or teams[:1]
    hint = f"; did you mean {name}:{near[0]}?" if near else ""
    raise SettingsError(f"the module {name} has no {attribute}{hint}", path="team")
