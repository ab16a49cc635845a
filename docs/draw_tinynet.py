"""Draw `docs/tinynet.svg`: one network imported as it is, and with the layouts that relayout chooses.

    python docs/draw_tinynet.py

The picture is data: an operator has a place and needs NCHW or not, and a Transpose stands where a wire changes layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

WIDTH, HEIGHT, ROW, PANEL, TOP = 62, 30, 34, 158, 94
STYLE = """
text { font: 13px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
.title { font-size: 17px; font-weight: 600; text-anchor: start } .note { text-anchor: start; fill: #59636e }
.box { fill: #f6f8fa; stroke: #59636e } .wire { fill: none; stroke-width: 2.5 }
.nhwc { stroke: #bc4c00 } .nchw { stroke: #0969da } .flat { stroke: #818b98 }
.transpose { fill: #bc4c00 } .mark { fill: #ffffff; font-weight: 700; font-size: 11px }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .note { fill: #9198a1 } .box { fill: #21262d; stroke: #9198a1 }
.nhwc { stroke: #f0883e } .nchw { stroke: #58a6ff } .flat { stroke: #6e7681 }
.transpose { fill: #f0883e } .mark { fill: #0d1117 } }
"""


@dataclass(frozen=True)
class Operator:
    """A box.

    Args:
        name: what stands in it.
        x: its middle.
        row: above or below the middle line.
        spatial: ONNX knows it in NCHW only.
        flat: what it gives has no axes left to order.
    """

    name: str
    x: int
    row: int = 0
    spatial: bool = False
    flat: bool = False


IMAGE = Operator("image", 40)
STEM = Operator("Conv", 132, spatial=True)
DEPTHWISE = Operator("DWConv", 240, spatial=True)
MIX = Operator("Conv", 348, spatial=True)
ADD = Operator("Add", 440)
WIDE = Operator("Conv", 534, -1, spatial=True)
SMOOTH = Operator("Pool", 534, 1, spatial=True)
CONCAT = Operator("Concat", 628)
SMALL = Operator("Pool", 720, spatial=True)
DEEP = Operator("Conv", 828, spatial=True)
LAST = Operator("Pool", 936, spatial=True)
RESHAPE = Operator("Reshape", 1028, flat=True)
GEMM = Operator("Gemm", 1110, flat=True)

CHAIN = (IMAGE, STEM, DEPTHWISE, MIX, ADD, WIDE, CONCAT, SMALL, DEEP, LAST, RESHAPE, GEMM)
WIRES = (*pairwise(CHAIN), (ADD, SMOOTH), (SMOOTH, CONCAT))
RESIDUAL = (STEM, ADD)


def panel(top: int, title: str, note: str, *, chosen: bool) -> list[str]:
    """One of the two graphs. `chosen`: all behind the input is NCHW; else only the operators that insist on it."""
    middle = top + TOP
    drawn = [
        f'<text class="title" x="10" y="{top + 22}">{title}</text>',
        f'<text class="note" x="10" y="{top + 42}">{note}</text>',
        residual(middle, chosen=chosen),
    ]
    for source, reader in WIRES:
        drawn += wire(source, reader, middle, chosen=chosen)
    return drawn + [box(op, middle) for op in (*CHAIN, SMOOTH)]


def wire(source: Operator, reader: Operator, middle: int, *, chosen: bool) -> list[str]:
    """The wire between two boxes, in pieces of one layout each, with a Transpose between any two."""
    x0, x1 = source.x + WIDTH // 2, reader.x - WIDTH // 2
    y0, y1 = middle + source.row * ROW, middle + reader.row * ROW
    layouts = layouts_along(source, reader, chosen=chosen)
    stops = {1: (0.0, 1.0), 2: (0.0, 0.5, 1.0), 3: (0.0, 0.24, 0.76, 1.0)}[len(layouts)]
    at = [(x0 + (x1 - x0) * stop, y0 + (y1 - y0) * stop) for stop in stops]
    pieces = [
        f'<path class="wire {layout}" d="M{a[0]:.0f},{a[1]:.0f} L{b[0]:.0f},{b[1]:.0f}"/>'
        for layout, (a, b) in zip(layouts, pairwise(at), strict=True)
    ]
    return pieces + [transpose(x, y) for x, y in at[1:-1]]


def layouts_along(source: Operator, reader: Operator, *, chosen: bool) -> tuple[str, ...]:
    """The layouts that a value has on its way: imported literally, an operator gives back what TensorFlow Lite gave."""
    if source.flat:
        return ("flat",)
    if chosen:
        return ("nhwc", "nchw") if source is IMAGE else ("nchw",)
    given, wanted = ("nchw" if op.spatial else "nhwc" for op in (source, reader))
    return (given, "nhwc", wanted) if given == wanted == "nchw" else (given, wanted) if given != wanted else (given,)


def residual(middle: int, *, chosen: bool) -> str:
    """The arc over a block: it leaves where its value is in the layout that Add reads."""
    start = STEM.x + WIDTH // 2 + (0 if chosen else (DEPTHWISE.x - STEM.x - WIDTH) // 2)
    end, arc = ADD.x - 4, middle - 52
    curve = f"M{start},{middle} C{start + 14},{arc} {end - 30},{arc} {end},{middle - HEIGHT // 2}"
    return f'<path class="wire {"nchw" if chosen else "nhwc"}" d="{curve}"/>'


def transpose(x: float, y: float) -> str:
    """A Transpose: a small filled square with a T."""
    return (
        f'<rect class="transpose" x="{x - 8:.0f}" y="{y - 8:.0f}" width="16" height="16" rx="3"/>'
        f'<text class="mark" x="{x:.0f}" y="{y + 4:.0f}">T</text>'
    )


def box(op: Operator, middle: int) -> str:
    """An operator, or an end of the graph."""
    y = middle + op.row * ROW
    return (
        f'<rect class="box" x="{op.x - WIDTH // 2}" y="{y - HEIGHT // 2}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>'
        f'<text x="{op.x}" y="{y + 5}">{op.name}</text>'
    )


def legend(y: int) -> list[str]:
    """What the colours mean."""
    drawn, x = [], 10
    for layout, text in (("nhwc", "n h w c"), ("nchw", "n c h w"), ("flat", "no axes to order")):
        drawn.append(f'<path class="wire {layout}" d="M{x},{y} h26"/>')
        drawn.append(f'<text class="note" x="{x + 34}" y="{y + 5}">{text}</text>')
        x += 116
    return [*drawn, transpose(x + 60, y), f'<text class="note" x="{x + 76}" y="{y + 5}">a Transpose at run time</text>']


def picture() -> str:
    """The whole file."""
    height = 2 * PANEL + 36
    parts = [
        *panel(0, "tinynet_float.tflite, imported literally", "16 Transposes, 246 KB per inference", chosen=False),
        *panel(PANEL, "relayout convert", "1 Transpose, 23 KB per inference; none with --io convert", chosen=True),
        *legend(height - 16),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1151 {height}" role="img">',
            "<title>A network imported literally, with 16 Transposes, and as relayout writes it, with one</title>",
            f"<style>{STYLE}</style>",
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(__file__).with_name("tinynet.svg").write_text(picture(), encoding="utf-8")
