"""Operators that older opsets have in another form, such as axes that became operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.older_model import NewerError, OlderModel


def _array(value: ir.Value | None) -> NDArray[Any] | None:
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def _drop_input(node: ir.Node, slot: int) -> None:
    """Leave out an operand and all that follow: they are absent."""
    node.resize_inputs(min(slot, len(node.inputs)))


def _axes_as_attribute(older: OlderModel, node: ir.Node) -> None:
    """A reduction's axes: an operand from 18 on."""
    if older.opset >= 18 or len(node.inputs) < 2:
        return
    axes = None if node.inputs[1] is None else _array(node.inputs[1])
    if node.inputs[1] is not None and axes is None:
        raise NewerError("computed axes, from opset 18 on")
    if axes is not None and axes.size:
        node.attributes["axes"] = ir.AttrInt64s("axes", [int(axis) for axis in axes.reshape(-1)])
    elif node.attributes.get_int("noop_with_empty_axes", 0):
        raise NewerError("no axes and noop_with_empty_axes, from opset 18 on")
    node.attributes.pop("noop_with_empty_axes", None)
    _drop_input(node, 1)


def _split(older: OlderModel, node: ir.Node) -> None:
    """A number of outputs that states sizes: from 18 on."""
    if older.opset >= 18 or "num_outputs" not in node.attributes:
        return
    count = node.attributes["num_outputs"].as_int()
    del node.attributes["num_outputs"]
    value = node.inputs[0]
    axis = node.attributes.get_int("axis", 0)
    extent = None if value is None or value.shape is None else value.shape[axis]
    if not isinstance(extent, int):
        raise NewerError("an open extent in parts, from opset 18 on")
    if extent % count:
        size = -(-extent // count)
        sizes = np.array([size] * (count - 1) + [extent - size * (count - 1)], np.int64)
        node.resize_inputs(2)
        node.replace_input_with(1, older.constant("split", sizes))


def _pad(older: OlderModel, node: ir.Node) -> None:
    """A Pad of some axes: from 18 on."""
    if older.opset >= 18 or len(node.inputs) < 4:
        return
    axes, pads, value = _array(node.inputs[3]), _array(node.inputs[1]), node.inputs[0]
    if axes is None or pads is None or value is None or value.shape is None:
        raise NewerError("computed axes, from opset 18 on")
    rank, count = len(value.shape), axes.size
    whole = np.zeros(2 * rank, np.int64)
    for place, axis in enumerate(int(each) % rank for each in axes.reshape(-1)):
        whole[axis], whole[rank + axis] = pads[place], pads[count + place]
    node.replace_input_with(1, older.constant("pads", whole))
    _drop_input(node, 3)


def _resize(older: OlderModel, node: ir.Node) -> None:
    """A Resize of some axes: from 18 on."""
    if older.opset >= 18 or "axes" not in node.attributes:
        return
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise NewerError("axes of an unknown rank, from opset 18 on")
    rank = len(value.shape)
    axes = [axis % rank for axis in node.attributes["axes"].as_ints()]
    del node.attributes["axes"]
    for slot, rest in ((2, [1.0] * rank), (3, list(value.shape))):
        given = node.inputs[slot] if slot < len(node.inputs) else None
        known = _array(given)
        if given is None or (known is not None and not known.size):
            continue
        if known is None or not all(isinstance(dim, int | float) for dim in rest):
            raise NewerError("computed sizes of some axes, from opset 18 on")
        whole = np.array(rest, known.dtype)
        whole[axes] = known.reshape(-1)
        node.replace_input_with(slot, older.constant("sizes" if slot == 3 else "scales", whole))


def _grid_sample(older: OlderModel, node: ir.Node) -> None:
    """The words for modes changed with 20."""
    words = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.attributes.get_string("mode", "linear")
    if older.opset < 20 and mode in words:
        node.attributes["mode"] = ir.AttrString("mode", words[mode])


def _roi_align(older: OlderModel, node: ir.Node) -> None:
    """Before 16 there is one way to count coordinates."""
    if older.opset >= 16:
        return
    mode = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    if mode != "output_half_pixel":
        raise NewerError(f"coordinate_transformation_mode {mode}, from opset 16 on")
    node.attributes.pop("coordinate_transformation_mode", None)


def _pool(older: OlderModel, node: ir.Node) -> None:
    """Since 22, a window that begins in the padding behind an axis is none (`ceil_mode`)."""
    if older.opset >= 22 or not node.attributes.get_int("ceil_mode", 0):
        return
    value, result = node.inputs[0], node.outputs[0]
    window = node.attributes["kernel_shape"].as_ints()
    ones, none = [1] * len(window), [0] * (2 * len(window))
    steps, gaps = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    pads = node.attributes.get_ints("pads", none)
    if value is None or value.shape is None or result.shape is None:
        raise NewerError("ceil_mode 1 of an unknown shape, from opset 22 on")
    extents, counts = tuple(value.shape)[2:], tuple(result.shape)[2:]
    for axis, (extent, count) in enumerate(zip(extents, counts, strict=True)):
        reach = (window[axis] - 1) * gaps[axis] + 1
        room = extent + pads[axis] + pads[axis + len(window)] - reach if isinstance(extent, int) else None
        if room is None or count != -(-room // steps[axis]) + 1:
            raise NewerError("ceil_mode 1 with a window in the padding, from opset 22 on")


def _mod(older: OlderModel, node: ir.Node) -> None:
    """Real numbers have one remainder only before 26."""
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype is not None and dtype.is_floating_point() and not node.attributes.get_int("fmod", 0):
        raise NewerError("fmod 0 of real numbers")


def _always_newer(older: OlderModel, node: ir.Node) -> None:
    raise NewerError("it means something else in older opsets")


ROWS: Mapping[str, Callable[[OlderModel, ir.Node], None]] = {
    **dict.fromkeys(
        (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSumSquare",
        ),
        _axes_as_attribute,
    ),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    "DFT": _always_newer,
    "GridSample": _grid_sample,
    "GroupNormalization": _always_newer,
    "Mod": _mod,
    "Pad": _pad,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Split": _split,
}
"""Operators whose definition changed in more than what a schema tells."""
