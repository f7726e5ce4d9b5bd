"""Settings: three sources, one validation, and mistakes that name the place where they were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard.actors.ports import Tuning
from callboard.storage.model.errors import SettingsError
from callboard.storage.model.policies import Edge
from callboard.supervisors.settings import Settings, load_settings


def load(folder: Path, arguments: dict[str, Any] | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load_settings(arguments or {}, environment or {}, cwd=folder)


def refused(
    folder: Path, arguments: dict[str, Any] | None = None, environment: dict[str, str] | None = None
) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load(folder, arguments, environment)
    assert "\n" not in str(caught.value)
    return caught.value


def test_without_any_source_the_defaults_stand(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.host, settings.port, settings.team, settings.json) == ("127.0.0.1", 8420, None, False)
    assert settings.data == tmp_path
    assert settings.store == f"sqlite:///{tmp_path}/callboard.db"
    # The product's figures are written down once: a setting that nobody set changes none of them.
    assert settings.tuning == attrs.evolve(Tuning(), poll_seconds=settings.tuning.poll_seconds)


@pytest.mark.spec("OPS-3")
def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text('port = 1\nhost = "a"\nteam = "file:team"\n')
    environment = {"CALLBOARD_PORT": "2", "CALLBOARD_HOST": "b"}
    settings = load(tmp_path, {"port": 3, "host": None}, environment)
    assert (settings.port, settings.host, settings.team) == (3, "b", "file:team")


@pytest.mark.spec("OPS-3")
@pytest.mark.parametrize(
    ("source", "key", "near"),
    [
        ("file", "prot", "port"),
        ("file", "leaseseconds", "lease_seconds"),
        ("file", "LOG_LEVEL", "log_level"),
        ("environment", "CALLBOARD_PROT", "CALLBOARD_PORT"),
        ("environment", "CALLBOARD_ALOWED_HOST", "CALLBOARD_ALLOWED_HOSTS"),
        ("environment", "CALLBOARD_", "CALLBOARD_"),
    ],
)
def test_an_unknown_key_names_its_path_and_the_nearest_known_one(
    tmp_path: Path, source: str, key: str, near: str
) -> None:
    if source == "file":
        (tmp_path / "callboard.toml").write_text(f"{key} = 1\n")
        error = refused(tmp_path)
        assert error.path == f"{tmp_path}/callboard.toml: {key}"
    else:
        error = refused(tmp_path, environment={key: "1"})
        assert error.path == key
    assert near in error.message


def test_variables_of_others_and_reserved_ones_are_left_alone(tmp_path: Path) -> None:
    others = {"CALLBOARD_TEST_DATA": "/somewhere", "PORT": "1", "callboard_port": "x", "CALLBOARDS": "1"}
    assert load(tmp_path, environment=others) == load(tmp_path)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(tmp_path, environment={"CALLBOARD_TEAM": "", "CALLBOARD_PORT": ""}) == load(tmp_path)


def test_variables_are_read_by_their_settings_type(tmp_path: Path) -> None:
    environment = {
        "CALLBOARD_PORT": "0",
        "CALLBOARD_JSON": "True",
        "CALLBOARD_LEASE_SECONDS": "1.5",
        "CALLBOARD_ALLOWED_HOSTS": "board.example, other.example,",
        "CALLBOARD_TEAM": "a:b",
    }
    settings = load(tmp_path, environment=environment)
    assert (settings.port, settings.json, settings.lease_seconds, settings.team) == (0, True, 1.5, "a:b")
    assert settings.allowed_hosts == ("board.example", "other.example")


@pytest.mark.spec("OPS-3")
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("port", "x", "must be a whole number"),
        ("port", "70000", "must be 0 to 65,535"),
        ("port", "-1", "must be 0 to 65,535"),
        ("json", "maybe", "must be a boolean"),
        ("lease_seconds", "nan", "must be a finite number"),
        ("lease_seconds", "0.5", "must be 1 to 3,600"),
        ("live_turns", "0", "must be 1 to 100,000"),
        ("log_level", "loud", "must be one of debug, info, warning, error"),
        ("tls_cert", "cert.pem", "needs tls_key as well"),
        ("tls_key", "key.pem", "needs tls_cert as well"),
        ("host", " \t", "must name a host or an address"),
        ("timezone", "Europe", "is no time zone that this machine knows, such as Europe/Paris"),
        (
            "store",
            "mysql://x",
            "must be sqlite:///FILE (relative) or sqlite:////FILE (absolute), or postgresql://USER@HOST/DATABASE",
        ),
        (
            "store",
            "callboard.db",
            "must be sqlite:///FILE (relative) or sqlite:////FILE (absolute), or postgresql://USER@HOST/DATABASE",
        ),
    ],
)
def test_a_wrong_value_names_the_variable(tmp_path: Path, key: str, value: str, reason: str) -> None:
    variable = f"CALLBOARD_{key.upper()}"
    error = refused(tmp_path, environment={variable: value})
    assert (error.path, error.message) == (variable, reason)


@pytest.mark.parametrize(
    ("line", "key", "reason"),
    [
        ("port = '8420'", "port", "must be a whole number"),
        ("port = true", "port", "must be a whole number"),
        ("allowed_hosts = 'a.example'", "allowed_hosts", "must be a list"),
        ("allowed_hosts = ['a.example', 1]", "allowed_hosts", "must be a string"),
        ("tls_cert = 1", "tls_cert", "must be a string"),
        ("store = 1", "store", "must be a string"),
        ("[port]\nnumber = 1", "port", "must be a whole number"),
        ("data = '/elsewhere'", "data", "can't be set in the file, which is read from that folder"),
    ],
)
def test_a_wrong_value_names_the_file_and_the_key(tmp_path: Path, line: str, key: str, reason: str) -> None:
    (tmp_path / "callboard.toml").write_text(line)
    error = refused(tmp_path)
    assert (error.path, error.message) == (f"{tmp_path}/callboard.toml: {key}", reason)


def test_a_wrong_argument_names_the_option(tmp_path: Path) -> None:
    assert refused(tmp_path, {"port": 65_536}).path == "--port"
    assert refused(tmp_path, {"tls_cert": Path("c.pem")}).path == "--tls-cert"


@pytest.mark.parametrize("content", [b"port = [", b"\xff\xfe", b"port = 1\nport = 2", b"a" * 3_000])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "callboard.toml").write_bytes(content)
    error = refused(tmp_path)
    assert error.path == f"{tmp_path}/callboard.toml"
    assert "is not TOML" in error.message


def test_a_file_that_is_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").mkdir()
    assert "can't be read" in refused(tmp_path).message


def test_dir_is_what_is_given_else_the_stores_folder_else_the_current_one(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/deep/x.db"
    assert load(tmp_path).data == tmp_path
    assert load(tmp_path, {"store": store}).data == tmp_path / "deep"
    assert load(tmp_path, {"store": store, "data": "given"}).data == tmp_path / "given"
    assert load(tmp_path, environment={"CALLBOARD_STORE": store}).data == tmp_path / "deep"
    assert load(tmp_path, {"store": "sqlite:///:memory:"}).data == tmp_path


def test_relative_paths_are_relative_to_where_they_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "callboard.toml").write_text("store = 'sqlite:///own.db'\ntls_cert = 'c.pem'\ntls_key = 'k.pem'\n")
    settings = load(tmp_path, {"data": "board", "tls_key": Path("mine.pem")})
    assert settings.store == f"sqlite:///{folder}/own.db"
    assert settings.store_file == folder / "own.db"
    assert (settings.tls_cert, settings.tls_key) == (folder / "c.pem", tmp_path / "mine.pem")
    assert load(tmp_path, {"data": "board", "store": "sqlite:///x/../y.db"}).store == f"sqlite:///{tmp_path}/y.db"


def test_the_file_is_read_from_the_folder_of_a_store_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "callboard.toml").write_text("port = 7\n")
    assert load(tmp_path, {"store": "sqlite:///board/x.db"}).port == 7


def test_a_store_in_memory_has_no_file(tmp_path: Path) -> None:
    assert load(tmp_path, {"store": "sqlite:///:memory:"}).store_file is None


def test_settings_reach_the_runtimes_figures(tmp_path: Path) -> None:
    given = {"lease_seconds": 6.0, "stop_grace_seconds": 1.0, "live_turns": 7, "mailbox_depth": 8}
    tuning = load(tmp_path, {**given, "pair_per_minute": 0, "event_keep_hours": 2.0}).tuning
    assert tuning.lease_seconds == 6
    assert tuning.renew_seconds == 2
    assert tuning.stop_grace_seconds == 1
    assert (tuning.live_turns, tuning.mailbox_depth, tuning.pair_per_minute) == (7, 8, 0)
    assert (tuning.timezone, load(tmp_path, {"timezone": "Europe/Paris"}).tuning.timezone) == (None, "Europe/Paris")
    assert tuning.event_keep_seconds == 7_200


@pytest.mark.spec("NS-4")
def test_the_edge_policy_is_one_of_two_words(tmp_path: Path) -> None:
    assert load(tmp_path).tuning.edge is Edge.COLLABORATE
    assert load(tmp_path, environment={"CALLBOARD_EDGE_POLICY": "handoff_only"}).tuning.edge is Edge.HANDOFF_ONLY
    error = refused(tmp_path, environment={"CALLBOARD_EDGE_POLICY": "open"})
    assert (error.path, error.message) == ("CALLBOARD_EDGE_POLICY", "must be one of collaborate, handoff_only")
