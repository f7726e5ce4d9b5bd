"""Draws cost against size as an SVG: sizes along a logarithmic axis, one line for each database, and what the specification allows.

Not here: measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 50, 50
COLOURS = ("#1769aa", "#b3541e")
ALLOWED = 1.5
"""Of the cost at the smallest size (RT-13)."""
STYLE = (
    "text { font: 13px sans-serif; fill: #222 } .grid { stroke: #ddd } .allowed { stroke: #888; stroke-dasharray: 6 4 }"
)


def draw(curves: Mapping[str, Mapping[int, float]]) -> str:
    """The text of an SVG file. `curves` are microseconds a claim by pending rows, for each database."""
    sizes = sorted({size for curve in curves.values() for size in curve})
    highest = max(max(curve.values()) for curve in curves.values())
    highest = _round_up(max(highest, *(ALLOWED * curve[min(curve)] for curve in curves.values())))
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def x(size: float) -> float:
        return LEFT + (math.log10(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(cost: float) -> float:
        return HEIGHT - BOTTOM - cost / highest * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT, 25, "Claiming one mailbox: microseconds (median) by pending rows", "start")]
    for part in range(5):
        cost = highest * part / 4
        parts += [
            _line("grid", (x(sizes[0]), y(cost)), (x(sizes[-1]), y(cost))),
            _text(LEFT - 8, y(cost) + 4, f"{cost:g}", "end"),
        ]
    for size in sizes:
        parts.append(_text(x(size), HEIGHT - BOTTOM + 20, f"{size:,}", "middle"))
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        points = [(x(size), y(cost)) for size, cost in sorted(curve.items())]
        joined = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (across, down), (size, cost) in zip(points, sorted(curve.items()), strict=True):
            parts.append(
                f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{colour}"><title>{size:,}: {cost:.1f}</title></circle>'
            )
        parts.append(_text(points[-1][0] + 10, points[-1][1] + 4, name, "start"))
        allowed = y(ALLOWED * curve[min(curve)])
        parts.append(_line("allowed", (x(sizes[0]), allowed), (x(sizes[-1]), allowed)))
        parts.append(_text(x(sizes[-1]) + 10, allowed + 4, f"{name}: {ALLOWED} × {sizes[0]:,}", "start"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">\n'
        f'<style>{STYLE}</style>\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _round_up(cost: float) -> float:
    """The next 1, 2, 4 or 8 times a power of ten: four steps of it are round too."""
    power = 10.0 ** math.floor(math.log10(cost))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= cost)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(kind: str, begin: tuple[float, float], end: tuple[float, float]) -> str:
    return f'<line class="{kind}" x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
