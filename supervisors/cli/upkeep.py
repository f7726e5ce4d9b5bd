"""`callboard migrate`. Not here: what migrations are (`storage`)."""

from __future__ import annotations

import trio

from ...storage.model.errors import Rejected
from ...storage.store import open_store
from ..settings import load_settings
from .arguments import Asked
from .output import as_json, line, progress


def migrate_command(asked: Asked) -> int:
    """Open the store once, which brings it up to date, and tell what was done."""
    settings = load_settings(asked.settings)

    async def run() -> tuple[str, ...]:
        async with open_store(settings.store) as store:
            return store.migrated

    file = settings.store_file
    if file is None and not settings.on_server:
        raise Rejected("a store in memory has nothing to migrate", path="store")
    if file is not None:
        settings.make_folder()
    made = file is not None and not file.exists()
    name = file or settings.store_shown
    with progress(f"migrating {name}"):
        applied = trio.run(run)
    if settings.json:
        as_json({"store": settings.store_shown, "migrated": list(applied)})
    elif applied:
        line(f"{name}: {'made with' if made else 'applied'} {', '.join(applied)}")
    else:
        line(f"{name}: nothing to do")
    return 0
