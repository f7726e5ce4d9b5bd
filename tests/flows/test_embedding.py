"""Programs that embed Callboard: the portal's examples, and one whose own modules bear the names of our folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script: Path, *arguments: str) -> str:
    """What a program prints, run as a user runs it, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".links")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.spec("RT-16")
def test_the_threaded_example() -> None:
    assert run(ROOT / "examples/threads.py").splitlines() == [
        "answered answered answered",
        "sent again: the same message",
        "BLUE GREEN RED",
    ]


@pytest.mark.spec("RT-16")
def test_the_asyncio_example(tmp_path: Path) -> None:
    assert run(ROOT / "examples/asyncio_host.py", str(tmp_path)).splitlines() == [
        "[('hello-Ada', 202), ('hello-Grace', 202)]",
        "made: 2",
        "{'status': 200, 'outcome': 'answered', 'answer': 'Hello, Ada!'}",
        "{'status': 200, 'outcome': 'answered', 'answer': 'Hello, Grace!'}",
    ]
    # The store is still there: the same sends are the same messages.
    assert "made: 0" in run(ROOT / "examples/asyncio_host.py", str(tmp_path))


PROGRAM = """
import trio
import actors, storage, supervisors                  # the program's own
import callboard

async def main():
    async with callboard.open_runtime("sqlite:///:memory:", agents={"own": actors.own}) as runtime:
        session = await runtime.open_session(agent="own")
        receipt = await runtime.send(session.id, "hello")
        await runtime.wait(receipt.id)
        print((await runtime.read(session.id))[-1].content)
    print(storage.SAVED, supervisors.NAME)

trio.run(main)
"""


@pytest.mark.spec("RT-16")
def test_a_program_with_its_own_storage_and_actors_modules(tmp_path: Path) -> None:
    (tmp_path / "storage.py").write_text("SAVED = []\n")
    (tmp_path / "supervisors.py").write_text("NAME = 'mine'\n")
    (tmp_path / "actors.py").write_text(
        "import storage\nasync def own(turn):\n    storage.SAVED.append(turn.text)\n    return 'own ' + turn.text\n"
    )
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    assert run(script).splitlines() == ["own hello", "['hello'] mine"]
