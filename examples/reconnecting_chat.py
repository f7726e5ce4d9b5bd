"""A client that outlives its server: the server is killed in the middle of an answer, started again, and the answer is complete.

The client follows by cursor and sends under message ids, so nothing is lost and nothing is done twice. What was streamed by the attempt
that died is dropped when the next one begins.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import trio

from callboard import client


def serve(folder: str, port: str = "0") -> tuple[subprocess.Popen[str], str, str]:
    """Start a server with the demonstration team; returns it, its URL and its token once it serves."""
    command = [sys.executable, "-m", "callboard", "serve", "--json", "--port", port, "--data", folder]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    assert server.stdout is not None
    first = json.loads(server.stdout.readline())
    return server, first["url"], Path(first["token_file"]).read_text().strip()


async def main(folder: str) -> None:
    server, url, token = serve(folder)
    conversation = client.Conversation()
    async with client.connect(url, token) as board:
        session = await find_root(url, token)
        events = board.subscribe(session)
        await board.send(session, "count 20", message_id="m-1")
        text, killed = "", False
        async for event in events:
            show = conversation.see(event)
            if show is None:
                continue
            if show.kind == client.ShowKind.TEXT:
                text += show.text
                if not killed and text.startswith("1 2 3"):
                    killed = True
                    print("streamed: 1 2 3 … and now the server is killed")
                    server.kill()
                    server.wait()
                    server, *_ = serve(folder, port=url.rpartition(":")[2])
            elif show.kind == client.ShowKind.DROPPED:
                print("the server is back, the turn starts again")
                text = ""
            elif show.kind == client.ShowKind.ANSWER:
                print(f"answer: {text + show.text}")
                break
        again = await board.send(session, "count 20", message_id="m-1")
        print(f"sent once more under the same id: created {again.created}, {again.status}")
    server.terminate()
    print(f"server: exit {server.wait()}")


async def find_root(url: str, token: str) -> str:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        return (await http.get(f"{url}/v1/sessions", params={"path": "/"})).json()["sessions"][0]["id"]


with tempfile.TemporaryDirectory() as name:
    trio.run(main, name)
