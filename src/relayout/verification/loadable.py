"""Operators that ONNX Runtime does not load, written as those of the standard that they are defined by."""

import onnx_ir as ir

from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.qonnx import define_quantizers
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_nodes
from relayout.rules import outputs_of
from relayout.rules.internal_nhwc import is_internal, standard_of


def make_loadable(model: ir.Model) -> tuple[str, ...]:
    """Write operators that ONNX Runtime does not load as those of the standard, in place; return what to say of it."""
    return (*_define_quantizers(model), *_run_as_standard(model))


# Quantizers of QONNX by their own definition, on real numbers: not by the integers that a result may have.


def _define_quantizers(model: ir.Model) -> tuple[str, ...]:
    if not define_quantizers(model, Names.of(model), by_integers=False):
        return ()
    complete(model, outputs_of)
    return ("quantizers of QONNX, run by their definition on real numbers",)


# Operators of ONNX Runtime's internal domain for channels last, as the standard's between Transposes.
#
# ONNX Runtime loads no file with operators of that domain: they are there from the time an execution provider has
# claimed them. To run such a model, each is written as what the domain means by it.


def _run_as_standard(model: ir.Model) -> tuple[str, ...]:
    """Write operators of the internal domain as the standard's between Transposes, in place; what to say of it."""
    nodes = [(node, key) for node in all_nodes(model.graph) if is_internal(node) and (key := standard_of(node))]
    if nodes:
        complete(model, outputs_of)
    count = 0
    for node, key in nodes:
        operand, result, graph = node.inputs[0], node.outputs[0], node.graph
        if operand is None or operand.shape is None or graph is None:
            continue
        rank = len(operand.shape)
        named = node.name or result.name
        to_first, to_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
        first = ir.node("Transpose", [operand], {"perm": to_first}, name=f"{named}/to_first")
        last = ir.node("Transpose", [result], {"perm": to_last}, name=f"{named}/to_last")
        node.domain, node.op_type = key
        node.replace_input_with(0, first.outputs[0])
        value, name = last.outputs[0], result.name
        value.shape, value.type = result.shape, result.type
        result.replace_all_uses_with(value, replace_graph_outputs=True)
        last.replace_input_with(0, result)
        result.name, result.shape, value.name = f"{name}/channels_first", None, name
        first.outputs[0].name = f"{name}/operand"
        value.metadata_props.update(result.metadata_props)
        result.metadata_props.clear()
        model.opset_imports.setdefault(key[0], 1)
        graph.insert_before(node, first)
        graph.insert_after(node, last)
        count += 1
    if not count:
        return ()
    return (f"operators of com.ms.internal.nhwc, run as the standard's between Transposes: {count}",)
