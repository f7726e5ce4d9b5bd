"""Named statements as SQLite sees them: those for several rows written out for a few. Not here: any judgement."""

from __future__ import annotations

import re

from callboard.storage.queries import load
from callboard.storage.sqlite.tx import row_text


def written(name: str, rows: int = 1) -> str:
    """The SQLite statement `name`, for `rows` rows if it takes several."""
    sql = load("sqlite")[name]
    # The columns of what it is given: named at `v`, or those of the INSERT.
    columns = re.search(r"\bv \(([^)]*)\)|\(([^)]*)\)\s+VALUES :rows", sql)
    return sql if columns is None else row_text(sql, rows, (columns[1] or columns[2]).count(",") + 1)
