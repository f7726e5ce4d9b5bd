"""TLS from the command line: what a client of the folder trusts is the one certificate that the server announced, and nothing else."""

from __future__ import annotations

import json
import os
import ssl
from pathlib import Path

import httpx
import pytest
import trio
import trustme

from callboard.supervisors.cli.announce import take_folder
from callboard.tests.flows.cli_kit import DEADLINE, run, serving


def issue(folder: Path, name: str) -> trustme.CA:
    """A certificate for `name` by an authority of its own: `name`.pem, its key `name`.key."""
    authority = trustme.CA()
    certificate = authority.issue_cert(name)
    (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(folder / f"{name}.key")
    return authority


async def test_every_client_command_works_over_tls(tmp_path: Path) -> None:
    authority = issue(tmp_path, "board.example")
    async with serving(tmp_path, "--tls-cert", "board.example.pem", "--tls-key", "board.example.key") as server:
        assert server.url.startswith("https://")
        assert json.loads((tmp_path / "server.json").read_text())["certificate"] == str(tmp_path / "board.example.pem")
        done = await run("chat", folder=tmp_path, stdin="echo over wss\n")
        assert (done.code, done.out, done.err) == (0, "over wss\n", "")
        assert (await run("inbox", "prune", "--older-than", "0s", "--json", folder=tmp_path)).json["blanked"] == 1
        report = json.loads((await run("doctor", "--json", folder=tmp_path)).out)
        assert report["state"] == "ok", report
        assert server.url in str(report["checks"])
        # Others trust its authority and its name, as usual.
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        token = server.token_file.read_text().strip()
        async with httpx.AsyncClient(verify=trust, timeout=DEADLINE) as client:
            answer = await client.get(
                f"{server.url}/v1/sessions",
                headers={"Authorization": f"Bearer {token}", "Host": "localhost"},
                extensions={"sni_hostname": "board.example"},
            )
            assert answer.status_code == 200


@pytest.mark.parametrize(
    ("command", "code"),
    [(("sessions", "list"), 0), (("chat",), 1), (("doctor",), 1)],  # the first asks the store: nobody of ours is there
)
async def test_who_has_another_certificate_at_that_address_is_a_stranger(
    tmp_path: Path, command: tuple[str, ...], code: int
) -> None:
    issue(tmp_path, "board.example")
    issue(tmp_path, "other.example")
    async with serving(tmp_path, "--tls-cert", "board.example.pem", "--tls-key", "board.example.key"):
        pass
    heard: list[bytes] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "other.example.pem", tmp_path / "other.example.key")

    async def listen(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            heard.append(await stream.receive_some())

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_ssl_over_tcp, listen, 0, context)
        port = listeners[0].transport_listener.socket.getsockname()[1]
        announced = {
            "url": f"https://127.0.0.1:{port}",
            "pid": os.getpid(),
            "certificate": str(tmp_path / "board.example.pem"),
        }
        with await take_folder(tmp_path):
            (tmp_path / "server.json").write_text(json.dumps(announced))
            done = await run(*command, folder=tmp_path)
        nursery.cancel_scope.cancel()
    assert done.code == code, done
    assert heard == [], "not a byte was sent to a stranger"
