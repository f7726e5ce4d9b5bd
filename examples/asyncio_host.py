"""Use Callboard from an asyncio program, as a web framework's handlers would: each handler awaits a blocking call in a thread.

python examples/asyncio_host.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable

import callboard

Handler = Callable[[dict[str, str]], Awaitable[dict[str, object]]]


async def greeter(turn: callboard.Turn) -> str:
    """Async agents run under Trio, beside the asyncio program."""
    await turn.emit("Hello, ")
    return f"Hello, {turn.text}!"


def make_app(portal: callboard.Portal) -> dict[str, Handler]:
    """What a framework would call routes."""

    async def post_message(body: dict[str, str]) -> dict[str, object]:
        receipt = await asyncio.to_thread(portal.send, "/", body["text"], message_id=body["id"])
        return {"status": 202, "message": receipt.message_id, "created": receipt.created}

    async def get_answer(body: dict[str, str]) -> dict[str, object]:
        view = await asyncio.to_thread(portal.wait, body["id"])
        entries = await asyncio.to_thread(portal.read, "/")
        answer = next(entry.content for entry in entries if entry.in_reply_to == body["id"])
        return {"status": 200, "outcome": str(view.outcome), "answer": answer}

    return {"POST /messages": post_message, "GET /answer": get_answer}


async def serve(portal: callboard.Portal) -> None:
    await asyncio.to_thread(portal.open_session, agent="greeter", path="/")
    app = make_app(portal)
    names = ("Ada", "Grace", "Ada")
    posted = await asyncio.gather(*(app["POST /messages"]({"text": name, "id": f"hello-{name}"}) for name in names))
    print(sorted({(str(reply["message"]), reply["status"]) for reply in posted}))
    print("made:", sum(bool(reply["created"]) for reply in posted))
    for name in ("Ada", "Grace"):
        print(await app["GET /answer"]({"id": f"hello-{name}"}))


def main(folder: str) -> None:
    with callboard.open_portal(f"sqlite:///{folder}/asyncio.db", agents={"greeter": greeter}) as portal:
        asyncio.run(serve(portal))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else scratch)
