"""Resource variables, which runtimes keep from run to run."""

from __future__ import annotations

from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.formats.tflite.states import ASSIGN, READ, RESTORED


@exporter(READ, domain=DOMAIN)
def read_variable(op: NodeExport) -> None:
    """VAR_HANDLE and READ_VARIABLE, with what CALL_ONCE assigns first."""
    name, variables = _name(op), op.graph.variables
    variables.initial[name], variables.read[name] = op.input(0), op.output(0)


@exporter(ASSIGN, domain=DOMAIN)
def assign_variable(op: NodeExport) -> None:
    """ASSIGN_VARIABLE at the end of each run."""
    op.graph.variables.assigned[_name(op)] = op.input(0)


def _name(op: NodeExport) -> str:
    if not op.node.meta.get(RESTORED):
        raise Unwritable("it was read from no .tflite")
    return op.text("variable")
