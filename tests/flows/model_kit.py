"""A model's service that was not written here: llmock as a child process, scripted over HTTP, which also judges its client.

Not here: services that misbehave below HTTP (`model_fake`). Nothing sleeps: the listening socket is ours and is handed to the process, so
a request that comes before it is up waits in the socket's queue, and a new process takes over where a killed one left.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any, Self

import httpx

DEADLINE = 60.0


class ModelServer:
    """The service at `url`. What it is told to do goes to the requests that follow, each once, in order; else it answers by itself."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._root = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"{self._root}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._socket.close()

    def start(self) -> None:
        """Start a process, which knows nothing of an earlier one."""
        descriptor = self._socket.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "llmock.main:app", "--fd", str(descriptor), "--log-level", "critical"],
            pass_fds=[descriptor],
            env={name: value for name, value in os.environ.items() if not name.startswith("LLMOCK_")},
        )

    def kill(self) -> None:
        """SIGKILL: what it was sending breaks off."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(DEADLINE)

    async def plan(self, *behaviors: dict[str, Any]) -> None:
        """Queue behaviours for the requests to come."""
        await self._admin("POST", "scenario", {"behaviors": list(behaviors)})

    async def reset(self) -> None:
        """Forget all requests and behaviours."""
        await self._admin("POST", "reset", {})

    async def requests(self) -> list[dict[str, Any]]:
        """Every request so far: its body, the answer's status, what was done to it."""
        found: list[dict[str, Any]] = (await self._admin("GET", "requests"))["requests"]
        return found

    async def findings(self) -> list[str]:
        """What the service has to say against how it was used."""
        return [finding["code"] for finding in (await self._admin("GET", "verdict"))["findings"]]

    async def _admin(self, method: str, name: str, body: dict[str, Any] | None = None) -> Any:
        # Plain HTTP: the default would read all certificates of the system for each request.
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=DEADLINE) as http:
            answer = await http.request(method, f"{self._root}/_llmock/{name}", json=body)
        answer.raise_for_status()
        return answer.json()


def says(text: str, **fields: Any) -> dict[str, Any]:
    """The model's next answer."""
    return {"type": "reply", "text": text, **fields}


def calls(*called: tuple[str, dict[str, Any]], text: str | None = None, **fields: Any) -> dict[str, Any]:
    """The model asks for these tools, each a name with arguments."""
    tools = [{"name": name, "arguments": arguments} for name, arguments in called]
    return {"type": "reply", "text": text, "tool_calls": tools, **fields}


def fails(status: int, **fields: Any) -> dict[str, Any]:
    """The next request gets this status."""
    return {"type": "fail", "status": status, **fields}


def breaks(kind: str, after_chunks: int, **fields: Any) -> dict[str, Any]:
    """The next stream is broken after some chunks: `disconnect`, `truncate`, `malformed` or `stall`."""
    return {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, **fields}
