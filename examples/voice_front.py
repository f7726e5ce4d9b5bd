r"""A voice front without the sound: each line of text is an utterance, and goes to the session that is open when it is spoken.

    printf 'take me to deploy\necho hello\n' | python voice_front.py

No line is ever looked at to find out whom it is for. A handoff opens another session; the voice follows it, with one short cue.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

from callboard import client


def serve(folder: str) -> tuple[subprocess.Popen[str], str, str]:
    """Start a server with the demonstration team; returns it, its URL and its token once it serves."""
    command = [sys.executable, "-m", "callboard", "serve", "--json", "--port", "0", "--data", folder]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    assert server.stdout is not None
    first = json.loads(server.stdout.readline())
    return server, first["url"], Path(first["token_file"]).read_text().strip()


async def listen(front: client.Front, ended: trio.MemorySendChannel[str]) -> None:
    """Speak what is to be heard."""
    async for notice in front:
        match notice:
            case client.Opened(by=client.By.HANDOFF):
                print(f"({notice.cue})")
            case client.Said(place, show) if show.kind is client.ShowKind.ANSWER:
                print(f"{place.agent}: {show.whole}")
            case client.Offered(place, handoff):
                print(f"(From {place.name}: shall I take you to {handoff.path}?)")
            case client.Ended():
                await ended.send(notice.message_id)
            case _:
                pass


async def main(folder: str) -> None:
    server, url, token = serve(folder)
    async with client.open_front(url, token, client="voice") as front, trio.open_nursery() as nursery:
        send, ended = trio.open_memory_channel[str](1)
        nursery.start_soon(listen, front, send)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            # A recognizer would give this text; whoever is open hears it.
            said = line.strip()
            print(f"you, at {front.open.path}: {said}")
            utterance = await front.say(said)
            while await ended.receive() != utterance.message_id:
                pass
        nursery.cancel_scope.cancel()
    server.terminate()
    print(f"server: exit {server.wait()}")


with tempfile.TemporaryDirectory() as name:
    trio.run(main, name)
