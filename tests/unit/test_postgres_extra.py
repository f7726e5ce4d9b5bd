"""A store on PostgreSQL without its extra: one line that says what to install, and no password. Not here: anything that needs a server."""

from __future__ import annotations

import sys

import pytest

from callboard.storage.model.errors import InvalidField
from callboard.storage.store import open_store, unapplied

URL = "postgresql://user:s3cret@host/db"


@pytest.mark.parametrize("missing", ["psycopg", "greenlet"])
async def test_without_its_extra_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in [name for name in sys.modules if name.startswith("callboard.storage.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidField) as opening:
        async with open_store(URL):
            pass
    with pytest.raises(InvalidField) as asking:
        unapplied(URL)
    for caught in (opening, asking):
        assert (
            str(caught.value)
            == f"store: needs the extra postgres ({missing} is missing): pip install 'callboard[postgres]'"
        )
