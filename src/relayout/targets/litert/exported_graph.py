"""A graph in its layouts that becomes a `.tflite`, and the passes over it."""

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.formats.recognition import was_tflite
from relayout.graph.facts import add_notes
from relayout.graph.passes import Stage
from relayout.lowering.passes import passes_of

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.units import QuantizedUnits
    from relayout.targets.target_table import Target


class ExportedGraph:
    """A graph in its layouts that becomes a `.tflite`: what passes over it see and change."""

    def __init__(
        self,
        model: ir.Model,
        *,
        is_litert: bool,  # whether LiteRT alone runs the file
    ) -> None:
        self.model, self.graph, self.is_litert = model, model.graph, is_litert
        self.is_rewritten = is_litert and not was_tflite(model.metadata_props)
        """A `.tflite` comes back with its own operators."""

    @cached_property
    def unsigned(self) -> bool:
        """True if unsigned integers stay unsigned."""
        from relayout.targets.litert.quantized_units import keeps_unsigned

        return keeps_unsigned(self.model, as_source=self.is_litert)

    @cached_property
    def units(self) -> "QuantizedUnits":
        """The operators that run on integers."""
        from relayout.targets.litert.quantized_units import quantized_units

        return quantized_units(self.model, unsigned=self.unsigned)


def exported_graph(model: ir.Model, target: "Target | None") -> ExportedGraph:
    """Run the last passes over a graph that becomes a `.tflite`, in place."""
    from relayout.targets.litert.slow_operators import LINE

    graph = ExportedGraph(model, is_litert=target is None or target.is_litert)
    counts: Counter[str] = Counter()  # operators that are others now
    for row in passes_of(Stage.EXPORT):
        if changes := row.run(graph):
            counts.update(changes)
            vars(graph).pop("units", None)
    if counts:
        add_notes(model, f"{LINE}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    return graph
