"""Where the data lies: the folder that CALLBOARD_TEST_DATA names. Without it these tests skip, and they are the only ones that may."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real-world test data."""
    folder = os.environ.get("CALLBOARD_TEST_DATA")
    if not folder:
        pytest.skip("CALLBOARD_TEST_DATA names no folder")
    return Path(folder)
