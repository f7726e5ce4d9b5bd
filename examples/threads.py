"""Use Callboard from an ordinary threaded program: the runtime lives in a thread of its own, every call blocks.

python examples/threads.py [FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import callboard


def shout(turn: callboard.Turn) -> str:
    """A plain function is an agent; it runs in a worker thread."""
    return turn.text.upper()


def main(folder: str) -> None:
    with callboard.open_portal(f"sqlite:///{folder}/threads.db", agents={"shout": shout}) as portal:
        desk = portal.open_session(agent="shout", path="/")
        with ThreadPoolExecutor(4) as pool:
            receipts = list(
                pool.map(lambda word: portal.send(desk.id, word, message_id=word), ("red", "green", "blue"))
            )
            outcomes = [portal.wait(receipt.message_id).outcome for receipt in receipts]
        print(*outcomes)
        again = portal.send(desk.id, "red", message_id="red")
        print("sent again:", "created" if again.created else "the same message")
        print(*sorted(entry.content for entry in portal.read(desk.id) if entry.role == "assistant"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(sys.argv[1] if len(sys.argv) > 1 else scratch)
