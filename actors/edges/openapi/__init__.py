"""The OpenAPI document: `schemas` has the shapes, `operations` the table of addresses, `document` puts them together.

Not here: carrying anything out. Invariant: every address of the application is in the table, and nothing else is; a test compares them.
"""

from __future__ import annotations
