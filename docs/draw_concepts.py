"""Draw the pictures of the concepts: `docs/concepts/layouts.svg` and `remains.svg`.

    python docs/draw_concepts.py

Both follow the system's light or dark mode.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parent / "concepts"
STYLE = """
text { font: 14px system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
.start { text-anchor: start } .note { fill: #59636e; font-size: 13px } .strong { font-weight: 600 }
.box { fill: #f6f8fa; stroke: #59636e } .wire { fill: none; stroke: #59636e; stroke-width: 2 }
.c0 { fill: #ffd8b5 } .c1 { fill: #b6e3ff } .c2 { fill: #c8e6c9 } .cell { stroke: #59636e }
.move { stroke: #818b98; fill: none } .cut { fill: #cf222e }
.maybe { fill: none; stroke: #cf222e; stroke-dasharray: 3 3 }
.nhwc { stroke: #bc4c00 } .nchw { stroke: #0969da } .t-nhwc { fill: #bc4c00 } .t-nchw { fill: #0969da }
.mark { fill: #ffffff; font-weight: 700; font-size: 12px } .faint { fill: #cf222e; font-size: 12px }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .note { fill: #9198a1 } .box { fill: #21262d; stroke: #9198a1 } .wire { stroke: #9198a1 }
.c0 { fill: #7a3b0c } .c1 { fill: #0c4a8a } .c2 { fill: #1f5e2a } .cell { stroke: #9198a1 }
.move { stroke: #6e7681 } .cut { fill: #f85149 } .maybe { stroke: #f85149 } .faint { fill: #ff7b72 }
.nhwc { stroke: #f0883e } .nchw { stroke: #58a6ff } .t-nhwc { fill: #f0883e } .t-nchw { fill: #58a6ff }
.mark { fill: #0d1117 } }
"""

CHANNELS, HEIGHT, WIDTH = 3, 2, 2
CELL, LEFT = 52, 100


def svg(width: int, height: int, title: str, body: list[str]) -> str:
    """A drawing of that size."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{title}</title>", f"<style>{STYLE}</style>", *body, "</svg>", ""])


def strip(y: int, order: list[tuple[int, int, int]]) -> list[str]:
    """The elements (c, h, w) as they lie in memory."""
    drawn = []
    for place, (c, h, w) in enumerate(order):
        x = LEFT + place * CELL
        drawn.append(f'<rect class="cell c{c}" x="{x}" y="{y}" width="{CELL}" height="34"/>')
        drawn.append(f'<text x="{x + CELL / 2:g}" y="{y + 22}">c{c} {h}{w}</text>')
    return drawn


def layouts() -> str:
    """The same elements in two orders, and where each goes."""
    ranges = {"c": range(CHANNELS), "h": range(HEIGHT), "w": range(WIDTH)}
    first = [(c, h, w) for c, h, w in product(ranges["c"], ranges["h"], ranges["w"])]
    last = [(c, h, w) for h, w, c in product(ranges["h"], ranges["w"], ranges["c"])]
    body = [
        '<text class="start strong" x="10" y="42">n c h w</text>',
        '<text class="start strong" x="10" y="162">n h w c</text>',
        '<text class="start note" x="100" y="208">channel, then row and column; memory from left to right</text>',
    ]
    for place, element in enumerate(first):
        x, to = LEFT + (place + 0.5) * CELL, LEFT + (last.index(element) + 0.5) * CELL
        body.append(f'<path class="move" d="M{x:g},54 C{x:g},96 {to:g},98 {to:g},140"/>')
    return svg(
        LEFT + 12 * CELL + 10,
        220,
        "Twelve elements stored as n c h w and as n h w c",
        [*body, *strip(20, first), *strip(140, last)],
    )


def remains() -> str:
    """A chain between two demands, and the price of a Transpose on each wire."""
    names = ("image", "Concat", "Conv", "Relu", "ReduceMax")
    prices = ("11,520", "23,040", "61,440", "61,440")
    body = [
        '<text class="t-nhwc strong" x="70" y="24">must be n h w c</text>',
        '<text class="t-nchw strong" x="418" y="24">must be n c h w</text>',
        '<text class="note" x="679" y="24">any order will do</text>',
    ]
    for number, name in enumerate(names):
        x = 25 + number * 174
        rim = {"image": " nhwc", "Conv": " nchw"}.get(name, "")
        body.append(
            f'<rect class="box{rim}" x="{x}" y="50" width="90" height="38" rx="6" stroke-width="{2.5 if rim else 1}"/>'
        )
        body.append(f'<text x="{x + 45}" y="74">{name}</text>')
        if number == len(prices):
            continue
        body.append(f'<path class="wire" d="M{x + 90},69 L{x + 174},69"/>')
        middle = x + 132
        if number == 0:
            body.append(f'<rect class="cut" x="{middle - 11}" y="58" width="22" height="22" rx="4"/>')
            body.append(f'<text class="mark" x="{middle}" y="74">T</text>')
            body.append(f'<text class="strong" x="{middle}" y="110">{prices[number]} bytes</text>')
        else:
            if number in (1, 2):
                body.append(f'<rect class="maybe" x="{middle - 11}" y="58" width="22" height="22" rx="4"/>')
            body.append(f'<text class="note" x="{middle}" y="110">{prices[number]} bytes</text>')
    body.append('<text class="note" x="157" y="130">here: the smallest</text>')
    body += [f'<text class="faint" x="{x}" y="130">as the source has it</text>' for x in (331, 505)]
    return svg(
        830,
        145,
        "A Transpose between a demand for n h w c and one for n c h w stands where the value is smallest",
        body,
    )


if __name__ == "__main__":
    (FOLDER / "layouts.svg").write_text(layouts(), encoding="utf-8")
    (FOLDER / "remains.svg").write_text(remains(), encoding="utf-8")
