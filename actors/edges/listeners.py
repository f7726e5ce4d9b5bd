"""Opening the sockets that the front listens on.

Lives here: binding host and port, the TLS context, and the one-line errors for what a person got wrong. Not here: accepting.

Invariant: all sockets of one call listen on the same port, also when the system chose it; on an error none stays open.
"""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from ...storage.model.errors import Rejected

_PORT_TRIES = 16
"""A port that the system chose for one address may be taken on the next address of the same host."""


class CannotListen(Rejected):
    """The address can't be listened on: host unknown, not of this machine, or the port needs privileges."""

    code: ClassVar[str] = "cannot_listen"


class AddressInUse(CannotListen):
    """Something listens on this host and port already."""

    code: ClassVar[str] = "address_in_use"


class BadCertificate(Rejected):
    """The certificate or its key can't be used; the message names the files."""

    code: ClassVar[str] = "bad_certificate"


@attrs.frozen
class Endpoint:
    """An address that is listened on."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        """`http://127.0.0.1:8420`, `https://[::1]:8420`; no path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
    """Listen on every address that `host` names, all on one port; port 0 lets the system choose.

    `host` is a name or an address; `0.0.0.0` and `::` are all addresses of that family. An address that this machine lacks (`localhost`
    where IPv6 is off) is left out if another one works. Raises `AddressInUse` or `CannotListen`.
    """
    if not 0 <= port <= 65535:
        raise CannotListen(f"{port} is not a port: it must be from 0 to 65535")
    addresses = await _resolve(host, port)
    for _ in range(_PORT_TRIES if port == 0 else 1):
        listeners: list[trio.SocketListener] = []
        missing: OSError | None = None
        bound = port
        try:
            for address in addresses:
                try:
                    listeners += await trio.open_tcp_listeners(bound, host=address)
                except OSError as error:
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    missing = error
                else:
                    bound = listeners[0].socket.getsockname()[1]
        except OSError as error:
            close_listeners(listeners)
            if error.errno == errno.EADDRINUSE and port == 0:
                continue
            raise _explain(error, host, port) from error
        if listeners:
            return listeners
        assert missing is not None
        raise _explain(missing, host, port) from missing
    raise AddressInUse(f"no port is free on all addresses of {host}")


def endpoint(listener: trio.SocketListener, *, tls: bool) -> Endpoint:
    """Where `listener` really listens."""
    host, port, *_ = listener.socket.getsockname()
    return Endpoint(host, port, tls)


def close_listeners(listeners: list[trio.SocketListener]) -> None:
    """Stop listening at once; closing twice does no harm."""
    for listener in listeners:
        listener.socket.close()


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A server's context for HTTP/1.1 from two PEM files; blocks for the reading. Raises `BadCertificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        # An empty password: OpenSSL would otherwise ask for one on the terminal and hang a service's start.
        context.load_cert_chain(certificate, key, password="")
    except FileNotFoundError as error:
        missing = next((file for file in (certificate, key) if not file.exists()), certificate)
        raise BadCertificate(f"{missing} does not exist") from error
    except PermissionError as error:
        raise BadCertificate(f"{certificate} and {key} must be readable") from error
    except ssl.SSLError as error:
        detail = error.reason or "no usable PEM data, or a key with a password"
        raise BadCertificate(f"{certificate} and {key} can't be used: {detail}") from error
    return context


async def _resolve(host: str, port: int) -> list[str]:
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise CannotListen(f"{host!r} is no host name or address that is known here") from error
    # A scope id ("%eth0") is part of the host name that getaddrinfo takes, but not of the address in its answer.
    return list(dict.fromkeys(host if "%" in host else str(sockaddr[0]) for *_, sockaddr in found))


def _explain(error: OSError, host: str, port: int) -> CannotListen:
    match error.errno:
        case errno.EADDRINUSE:
            return AddressInUse(f"{host} port {port} is in use: another program listens there")
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return CannotListen(f"{host} is not an address of this machine")
        case errno.EACCES | errno.EPERM:
            return CannotListen(f"{host} port {port} needs privileges that this process does not have")
        case _:
            return CannotListen(f"{host} port {port} can't be listened on: {error.strerror}")
