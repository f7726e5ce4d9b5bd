"""What README asks for behind pg_restore does for PostgreSQL what `callboard restore` does for a file."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from callboard.storage import postgres, sqlite
from callboard.storage.model.errors import LeaseLost
from callboard.storage.model.limits import RESTORE_JUMP
from callboard.storage.postgres.connect import Target, connect
from callboard.tests.contract.conftest import Databases, Kit, running

SCRIPT = (resources.files(postgres) / "restored.sql").read_text("utf-8")


@pytest.mark.spec("OPS-5")
async def test_numbers_leases_and_tickets_after_pg_restore(databases: Databases) -> None:
    url = databases("postgres")
    async with running(url) as store:
        kit = Kit(store)
        session = await kit.open(path="/desk")
        first = await kit.turn(session, "one")
        await kit.post(session, "two")
        held = await kit.claim(session, "a reader", holder_kind="reader", seconds=3_600.0)
        newest = (await kit.events(session))[-1].id
    connection = await connect(Target.parse(url))
    await connection.script(SCRIPT)
    connection.close()
    async with running(url) as store:
        kit = Kit(store)
        assert (await store.reads.restored() or (None, 1))[1] is None
        again = await kit.claim(session)
        assert (again.head.content, again.lease.epoch > RESTORE_JUMP) == ("two", True)
        with pytest.raises(LeaseLost):
            await kit.commit(held, "too late")
        await kit.commit(again, "in time")
        assert (await kit.entries(session))[-1].seq == first.seq + 2 + RESTORE_JUMP + 1
        assert (await kit.events(session, newest))[0].id == newest + RESTORE_JUMP + 1
        inside = await store.reads.events(kit.scope, session.id, after=newest + 1)
        assert inside.skipped
        assert not (await store.reads.events(kit.scope, session.id, after=newest)).skipped
        later = await kit.open(path="/later")
        await kit.post(later)
        taken = await kit.claim(later)
        assert min(taken.lease.mailbox, taken.head.row) > RESTORE_JUMP


def test_readme_names_the_script_and_it_does_to_each_table_what_the_other_one_does() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    assert "storage/postgres/restored.sql" in readme
    other = (resources.files(sqlite) / "restored.sql").read_text("utf-8")
    assert str(RESTORE_JUMP) in SCRIPT
    for pattern in (
        r"UPDATE (mailbox) SET (\w+)",
        r"DELETE FROM (process|ticket)",
        r"'(mailbox|message|token|restored_at)'",
    ):
        assert set(re.findall(pattern, SCRIPT)) == set(re.findall(pattern, other))
