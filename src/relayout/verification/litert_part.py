"""The part of a `.tflite` that another model was cut from, where LiteRT cannot load the whole: it has no kernel for
what the cut leaves out.
"""

from __future__ import annotations

from pathlib import Path

from relayout.errors import ReadError, RelayoutError
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.writer import to_bytes
from relayout.formats.tflite.importing.cutting import cut
from relayout.verification.litert import LiteRTSide
from relayout.verification.side import DeclaredPart, Source


def part_side(source: Source, part: DeclaredPart, error: ReadError) -> LiteRTSide:
    """Return the side of the part of a model that ends in some values.

    Args:
        source: the model, whose first subgraph or signature was cut.
        part: what the other model declares.
        error: why LiteRT does not load the whole.

    Raises:
        ReadError: `error`, if the part cannot be had or is not loaded either.
    """
    try:
        model = load(source if isinstance(source, bytes) else Path(str(source)))
        signature = model.signatures[0] if model.signatures else None
        index = signature.subgraph if signature else 0
        subgraph = cut(model, index, signature, (), part.outputs)
        side = LiteRTSide(to_bytes(model._replace(subgraphs=(subgraph,), signatures=())))
    except RelayoutError:
        raise error from None
    side.label = "the given bytes" if isinstance(source, bytes) else str(source)
    side.notes.append(f"the source ran as the result was cut, since of the whole {error.what}")
    return side
