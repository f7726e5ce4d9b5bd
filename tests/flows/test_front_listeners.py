"""Where the front listens, and what a person is told who asked for what can't be had."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio
import trustme

from callboard.actors.edges import listeners as module
from callboard.actors.edges.listeners import (
    AddressInUse,
    BadCertificate,
    CannotListen,
    Endpoint,
    close_listeners,
    endpoint,
    open_listeners,
    tls_context,
)
from callboard.tests.flows.front_kit import serving
from callboard.tests.flows.raw_client import get


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::1"])
async def test_port_0_is_chosen_and_reported(host: str) -> None:
    listeners = await open_listeners(host, 0)
    ports = {endpoint(listener, tls=False).port for listener in listeners}
    close_listeners(listeners)
    assert len(ports) == 1
    assert ports.pop() > 0


async def test_ipv6_is_served() -> None:
    async with serving(host="::1") as front:
        assert front.url == f"http://[::1]:{front.endpoint.port}"
        assert (await front.ask(get())).status == 200


async def test_all_addresses_of_a_name_share_the_port_that_the_system_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[tuple[str, int]] = []
    original = trio.open_tcp_listeners

    async def two_addresses(host: str, port: int) -> list[str]:
        return ["::1", "127.0.0.1"]

    async def busy_at_first(port: int, *, host: str) -> list[trio.SocketListener]:
        tries.append((host, port))
        if len(tries) == 2:
            raise OSError(errno.EADDRINUSE, "in use")
        return await original(port, host=host)

    monkeypatch.setattr(module, "_resolve", two_addresses)
    monkeypatch.setattr(trio, "open_tcp_listeners", busy_at_first)
    listeners = await open_listeners("both.example", 0)
    found = [endpoint(listener, tls=False) for listener in listeners]
    close_listeners(listeners)
    assert [place.host for place in found] == ["::1", "127.0.0.1"]
    assert found[0].port == found[1].port
    assert [host for host, _ in tries] == ["::1", "127.0.0.1"] * 2


async def test_an_address_that_this_machine_lacks_is_left_out_if_another_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two_addresses(host: str, port: int) -> list[str]:
        return ["192.0.2.1", "127.0.0.1"]

    monkeypatch.setattr(module, "_resolve", two_addresses)
    listeners = await open_listeners("both.example", 0)
    assert [endpoint(listener, tls=False).host for listener in listeners] == ["127.0.0.1"]
    close_listeners(listeners)


async def test_a_port_in_use_is_one_line() -> None:
    listeners = await open_listeners("127.0.0.1", 0)
    port = endpoint(listeners[0], tls=False).port
    with pytest.raises(AddressInUse) as caught:
        await open_listeners("127.0.0.1", port)
    close_listeners(listeners)
    assert str(caught.value) == f"127.0.0.1 port {port} is in use: another program listens there"
    close_listeners(await open_listeners("127.0.0.1", port))


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("no-such-host.invalid", 0, "no host name"),
        ("a" * 300, 0, "no host name"),
        ("192.0.2.1", 0, "192.0.2.1 is not an address of this machine"),
        ("127.0.0.1", 70000, "70000 is not a port"),
        ("127.0.0.1", -1, "-1 is not a port"),
    ],
)
async def test_a_wrong_address_is_one_line(host: str, port: int, text: str) -> None:
    with pytest.raises(CannotListen, match=text) as caught:
        await open_listeners(host, port)
    assert "\n" not in str(caught.value)


def test_urls() -> None:
    assert Endpoint("::1", 1, tls=True).url == "https://[::1]:1"
    assert Endpoint("127.0.0.1", 8420, tls=False).url == "http://127.0.0.1:8420"


def test_certificates_that_can_not_be_used(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate, key, other, text = (tmp_path / name for name in ("cert.pem", "key.pem", "other.pem", "text.pem"))
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    authority.issue_cert("localhost").private_key_pem.write_to_path(other)
    text.write_text("hello")
    tls_context(certificate, key)
    for bad_certificate, bad_key, message in [
        (tmp_path / "none.pem", key, "none.pem does not exist"),
        (certificate, tmp_path / "none.pem", "none.pem does not exist"),
        (certificate, other, "can't be used: KEY_VALUES_MISMATCH"),
        (text, key, "can't be used"),
        (certificate, text, "can't be used"),
    ]:
        with pytest.raises(BadCertificate, match=message):
            tls_context(bad_certificate, bad_key)
