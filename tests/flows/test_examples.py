"""The examples run as they stand, as programs of their own, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from callboard.tests.flows.cli_kit import environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {
    "desk.py": """\
accepted: m-1 (pending)
turn.completed: I asked billing; their answer will come here.
turn.completed: Billing says: Paid on Friday.
2 answers, the first in reply to m-1
receipt: delivered, answered, stages accepted, leased, surfaced, committed
""",
    "delegation.py": """\
I gave 3 tasks away.
choose a colour: Choose a colour? Done.
count the tins: Count the tins? Done.
measure the room: Measure the room? Done.
3 subagents: completed
""",
    "reconnecting_chat.py": """\
streamed: 1 2 3 … and now the server is killed
the server is back, the turn starts again
answer: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
sent once more under the same id: created False, delivered
server: exit 0
""",
    "voice_front.py": """\
you, at /: echo hello
front-desk: hello
you, at /: take me to deploy
(Now at deploy.)
front-desk: Taking you to deploy.
you, at /ops/deploy: echo front-desk, are you there?
deploy: front-desk, are you there?
you, at /ops/deploy: take me to /
(Now at main.)
deploy: Taking you to /.
you, at /: echo back
front-desk: back
server: exit 0
""",
}
SPOKEN = """\
echo hello
take me to deploy
echo front-desk, are you there?
take me to /
echo back
"""


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_it_prints_what_it_promises(tmp_path: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=environment(PYTHONIOENCODING="utf-8"),
        input=SPOKEN if name == "voice_front.py" else None,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", EXPECTED[name])


def test_they_are_short() -> None:
    for file in EXAMPLES.glob("*.py"):
        assert len(file.read_text().splitlines()) < 80, file
