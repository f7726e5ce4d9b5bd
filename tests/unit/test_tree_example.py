"""The example of the supervision library runs as shown."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXPECTED = """\
listener: bound
poller: exit abnormal, connection reset
poller: to be restarted
poller: exit abnormal, bad gateway
poller: to be restarted
job 3: done, quotient 4
job 0: failed, harming nobody: ZeroDivisionError
root (supervisor) running, restarts 0
  listener (worker) running, restarts 0
  poller (worker) running, restarts 2
  jobs (supervisor) running, restarts 0
jobs: exit shutdown
poller: exit shutdown
listener: last guest served
listener: exit shutdown
"""


@pytest.mark.spec("RT-2")
def test_supervise_anything() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "supervise_anything.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT / ".links")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.stdout, result.stderr, result.returncode) == (EXPECTED, "", 0)
