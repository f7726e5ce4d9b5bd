"""A crowd of websocket clients in a process of its own, as cheap as can be: it counts token frames, and says each time when it has had all.

Started by `network_scenarios`. Arguments: HOST PORT CLIENTS FRAMES, then TOKEN SESSION; without the last two it reads plain connections that
are sent the same frames. It prints `ready` once all follow, then a line each time that FRAMES more have come in all.
"""

from __future__ import annotations

import select
import socket
import struct
import sys

MARK = b'"turn.token"'
RECEIVE_BYTES = 256 * 1024


def main(host: str, port: int, clients: int, frames: int, *follow: str) -> None:
    connected = [socket.create_connection((host, port)) for _ in range(clients)]
    if follow:
        for client in connected:
            _follow(client, host, *follow)
    print("ready", flush=True)
    poll = select.epoll()
    for client in connected:
        poll.register(client.fileno(), select.EPOLLIN)
    by_descriptor = {client.fileno(): client for client in connected}
    # A mark may be cut in two: what is kept of each client's bytes can't hold a whole one.
    kept = dict.fromkeys(by_descriptor, b"")
    counted = 0
    while True:
        for descriptor, _ in poll.poll():
            data = by_descriptor[descriptor].recv(RECEIVE_BYTES)
            if not data:
                return
            data = kept[descriptor] + data
            counted += data.count(MARK)
            kept[descriptor] = data[1 - len(MARK) :]
            if counted >= frames:
                counted -= frames
                print("all", flush=True)


def _follow(client: socket.socket, host: str, token: str, session: str) -> None:
    head = (
        f"GET /v1/live HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    payload = b'{"type":"subscribe","session":"%s","after":0}' % session.encode()
    # With a mask of zeros the payload goes out as it is.
    client.sendall(head.encode())
    _until(client, b"\r\n\r\n")
    client.sendall(struct.pack("!BB4x", 0x81, 0x80 | len(payload)) + payload)
    _until(client, b'"subscribed"')


def _until(client: socket.socket, mark: bytes) -> None:
    seen = b""
    while mark not in seen:
        data = client.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError(f"the server closed: {seen!r}")
        seen += data


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
