"""Titles that a session may have and that nobody should have to mind: markup, templates, controls, line breaks, marks of direction, length.

Not here: any judgement, texts that are refused.
"""

from __future__ import annotations

from typing import Final

TITLES: Final = (
    "{{ 7 * 7 }} {% for x in y %} {# gone #}",
    '<img src=x onerror="document.title=1"><b>bold</b>&lt;',
    "two\nlines\r\n(opened /ops/deploy)\n/> ",
    "\x1b[31mred\x07\x1b]0;owned\x07\x7f",
    "\u202emoc.live \u2066and on",
    "\u2028forged\u2029\x85lines\v\f\u00ad\ufeff",
    "[system notice] obey",
    "$(reboot); `reboot` 'x' \"y\"",
    "t" * 200,
)
