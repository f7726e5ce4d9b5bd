"""Settings: one frozen value, merged from `DIR/callboard.toml`, `CALLBOARD_*` variables and arguments; arguments win (OPS-3).

Lives here: which settings there are, where they come from, the rules that name DIR and the store. Not here: what is done with them.
Invariant: a `Settings` that exists is valid; it was validated once, and a mistake is a `SettingsError` that names the place where it was made.

DIR is `data`, else the folder of the store's file, else the current one. A relative path is relative to DIR in the file, else to the
current folder. The store is `store`, else `DIR/callboard.db`.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..actors.ports import Tuning, check_timezone
from ..storage.model import limits
from ..storage.model.errors import InvalidField, Rejected, SettingsError
from ..storage.model.policies import Edge
from ..storage.sqlite.connect import MEMORY
from ..storage.store import SQLITE, sqlite_path
from ..storage.urls import is_server, shown_url
from ..storage.wire import structure

if TYPE_CHECKING:
    from ..actors.models.openai import ChatModel

FILE: Final = "callboard.toml"
STORE: Final = "callboard.db"
PREFIX: Final = "CALLBOARD_"
RESERVED: Final = frozenset({"CALLBOARD_TEST_DATA"})
"""Variables with the prefix that are no settings: the test suite's own."""
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_RENEWALS: Final = 3
"""Renewals within one lease: two may be missed before the lease is lost."""


@attrs.frozen(kw_only=True)
class Settings:
    """Everything that may be set. Names end in their unit; `data` is DIR, absolute; `store` is a URL, of a file an absolute one."""

    data: Path
    store: str = attrs.field(repr=lambda url: repr(shown_url(url)))
    host: str = "127.0.0.1"
    port: int = 8420
    """0: the system chooses."""
    team: str | None = None
    """MODULE:NAME of a `callboard.Team`; None: the demonstration team."""
    model_url: str | None = None
    """An OpenAI-compatible endpoint, as in `https://host/v1`: with it the demonstration team talks instead of taking commands."""
    model: str | None = None
    """The name of the model there."""
    model_key: str | None = attrs.field(default=None, repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Host names that browsers may reach us by, besides those of the loopback and `host`."""
    json: bool = False
    """Output, and logs, for programs."""
    log_level: str = "info"
    traces: bool = False
    """Send traces where OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, …) say; needs the extra `otel`."""
    lease_seconds: float = limits.LEASE_SECONDS
    stop_grace_seconds: float = limits.STOP_GRACE_SECONDS
    live_turns: int = Tuning().live_turns
    mailbox_depth: int = limits.MAILBOX_DEPTH
    edge_policy: str = str(Edge.COLLABORATE)
    """Whether agents write to each other where a project has no rule of its own: collaborate or handoff_only."""
    pair_per_minute: int = limits.PAIR_PER_MINUTE
    """Messages from one session to another; 0: no limit."""
    event_keep_hours: float = limits.EVENT_KEEP_SECONDS / 3600
    message_keep_days: float = 0
    """After this the inbox forgets the body of a final message; 0: never."""
    timezone: str | None = None
    """Where the project is, as in Europe/Paris: models are told the day that it is there; None: in UTC."""

    def __attrs_post_init__(self) -> None:
        if not self.host or not self.host.isprintable():
            raise InvalidField("must name a host or an address", path="host")
        _within("port", self.port, 0, 65_535)
        if (self.tls_cert is None) != (self.tls_key is None):
            missing, given = ("tls_key", "tls_cert") if self.tls_key is None else ("tls_cert", "tls_key")
            raise InvalidField(f"needs {missing} as well", path=given)
        if (self.model_url is None) != (self.model is None):
            missing, given = ("model_url", "model") if self.model_url is None else ("model", "model_url")
            raise InvalidField(f"needs {missing} (CALLBOARD_{missing.upper()}) as well", path=given)
        if self.team is not None and not is_team_name(self.team):
            raise InvalidField(f"must be MODULE:NAME, not {self.team!r}", path="team")
        if self.log_level not in LOG_LEVELS:
            raise InvalidField(f"must be one of {', '.join(LOG_LEVELS)}", path="log_level")
        if self.edge_policy not in set(Edge):
            raise InvalidField(f"must be one of {', '.join(Edge)}", path="edge_policy")
        _within("lease_seconds", self.lease_seconds, 1, 3_600)
        _within("stop_grace_seconds", self.stop_grace_seconds, 0, 3_600)
        _within("live_turns", self.live_turns, 1, 100_000)
        _within("mailbox_depth", self.mailbox_depth, 1, 10_000_000)
        _within("pair_per_minute", self.pair_per_minute, 0, 1_000_000)
        _within("event_keep_hours", self.event_keep_hours, 0.01, 1_000_000)
        _within("message_keep_days", self.message_keep_days, 0, 100_000)
        if self.timezone is not None:
            check_timezone(self.timezone)
        if not self.on_server:
            sqlite_path(self.store)

    @property
    def store_file(self) -> Path | None:
        """The database's file; None for one in memory or on a server."""
        path = MEMORY if self.on_server else sqlite_path(self.store)
        return None if path == MEMORY else Path(path)

    @property
    def on_server(self) -> bool:
        """Whether the store is a database server's, which other processes may use too."""
        return is_server(self.store)

    @property
    def store_shown(self) -> str:
        """The store's URL as people may see it."""
        return shown_url(self.store)

    def make_folder(self) -> None:
        """Make DIR, if it is missing. Raises `Rejected`."""
        try:
            self.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Rejected(f"can't be made: {error.strerror}", path=str(self.data)) from error

    def chat_model(self) -> ChatModel | None:
        """The model that is set, if one is. Raises `SettingsError` for one that can't be asked."""
        if self.model_url is None or self.model is None:
            return None
        from ..actors.models.openai import ChatModel

        try:
            return ChatModel(self.model_url, self.model, self.model_key)
        except InvalidField as error:
            setting = {"url": "model_url", "name": "model", "key": "model_key"}.get(error.path or "")
            raise SettingsError(error.message, path=setting) from None

    @property
    def tuning(self) -> Tuning:
        """The figures of a runtime."""
        return Tuning(
            lease_seconds=self.lease_seconds,
            renew_seconds=self.lease_seconds / _RENEWALS,
            stop_grace_seconds=self.stop_grace_seconds,
            live_turns=self.live_turns,
            mailbox_depth=self.mailbox_depth,
            pair_per_minute=self.pair_per_minute,
            edge=Edge(self.edge_policy),
            event_keep_seconds=self.event_keep_hours * 3600,
            message_keep_seconds=self.message_keep_days * 86_400 or None,
            timezone=self.timezone,
        )


_CREDENTIALS: Final = re.compile(r"://[^/@]*@")
_FIELDS: Final = attrs.fields_dict(attrs.resolve_types(Settings))
_PATHS: Final = frozenset({"data", "tls_cert", "tls_key"})


def load_settings(
    arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, cwd: Path | None = None
) -> Settings:
    """Merge and validate. `arguments` are settings by name (None: not given); `environment` is the process's unless given.

    Raises `SettingsError` whose path is where the mistake is: `--port`, `CALLBOARD_PORT` or `FILE: port`.
    """
    here = (cwd or working_folder()).absolute()
    given = {name: value for name, value in arguments.items() if value is not None}
    variables = _from_environment(os.environ if environment is None else environment)
    folder = _folder({**variables, **given}, here)
    file = folder / FILE
    written = _from_file(file)
    places: dict[str, str] = {
        **{name: f"{file}: {name}" for name in written},
        **{name: PREFIX + name.upper() for name in variables},
        **{name: "--" + name.replace("_", "-") for name in given},
    }
    try:
        merged = {**_anchored(written, folder), **_anchored({**variables, **given}, here), "data": folder}
        merged.setdefault("store", f"{SQLITE}/{folder / STORE}")
        return structure(_plain(merged), Settings, "")
    except InvalidField as error:
        name = (error.path or "").lstrip(".")
        place = places.get(name.partition("[")[0])
        raise SettingsError(error.message, path=name if place is None else place) from None


def working_folder() -> Path:
    """The current folder. Raises `Rejected` if it was deleted."""
    try:
        return Path.cwd()
    except OSError as error:
        raise Rejected(f"the current folder can't be used: {error.strerror}") from None


def is_team_name(text: str) -> bool:
    """Whether `text` is MODULE:NAME."""
    module, _, attribute = text.partition(":")
    return attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def shown(settings: Settings) -> dict[str, Any]:
    """All settings as people may see them: a secret is only said to be set, and an address is without its credentials."""
    found: dict[str, Any] = {}
    for field in attrs.fields(Settings):
        value = getattr(settings, field.name)
        if field.repr is False and value is not None:
            value = "set"
        if field.name == "store":
            value = settings.store_shown
        elif isinstance(value, str):
            value = _CREDENTIALS.sub("://", value)
        found[field.name] = str(value) if isinstance(value, Path) else value
    return found


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidField(f"must be {least:,g} to {most:,.0f}", path=name)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Settings among the variables; an empty one counts as not set. Raises `SettingsError` for an unknown one."""
    found: dict[str, Any] = {}
    known = {PREFIX + name.upper(): name for name in _FIELDS}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        if variable not in known:
            raise SettingsError(_unknown(variable, list(_FIELDS), PREFIX), path=variable)
        if text:
            found[known[variable]] = _parsed(known[variable], text)
    return found


def _parsed(name: str, text: str) -> Any:
    """A variable's text as its setting's type; what can't be read is left as it is, for the one validation to refuse."""
    kind = _FIELDS[name].type
    try:
        if kind is int or kind is float:
            return kind(text)
        if kind is bool:
            return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
    except (ValueError, KeyError):
        return text
    if name == "allowed_hosts":
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


def _from_file(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            written = tomllib.load(opened)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(f"can't be read ({error.strerror})", path=str(file)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"is not TOML: {error}", path=str(file)) from None
    for name in written:
        if name not in _FIELDS:
            raise SettingsError(_unknown(name, list(_FIELDS)), path=f"{file}: {name}")
    if "data" in written:
        raise SettingsError("can't be set in the file, which is read from that folder", path=f"{file}: data")
    return written


def _unknown(name: str, known: list[str], prefix: str = "") -> str:
    (near,) = difflib.get_close_matches(name.removeprefix(prefix).lower(), known, n=1, cutoff=0.0)
    return f"is not a setting; the nearest is {prefix + near.upper() if prefix else near}"


def _folder(given: Mapping[str, Any], here: Path) -> Path:
    if "data" in given:
        return Path(os.path.normpath(here / str(given["data"])))
    store = given.get("store")
    if not isinstance(store, str):
        return here
    try:
        path = sqlite_path(store)
    except InvalidField:
        return here  # refused with its place by the validation
    return here if path == MEMORY else Path(os.path.normpath(here / path)).parent


def _anchored(values: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The same settings with absolute paths."""
    found = dict(values)
    for name in _PATHS & found.keys():
        if not isinstance(found[name], str | Path):
            raise InvalidField("must be a string", path=name)
        found[name] = os.path.normpath(base / found[name])
    store = found.get("store")
    if isinstance(store, str) and store.startswith(SQLITE + "/"):
        path = store[len(SQLITE) + 1 :]
        if path and path != MEMORY:
            found["store"] = f"{SQLITE}/{os.path.normpath(base / path)}"
    return found


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them: no coercion happens after this, and a lone string is no list."""
    plain: dict[str, Any] = {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}
    hosts = plain.get("allowed_hosts")
    if hosts is not None and not isinstance(hosts, list | tuple):
        raise InvalidField("must be a list", path="allowed_hosts")
    return plain
