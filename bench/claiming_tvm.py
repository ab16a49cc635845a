"""What TVM's ConvertLayout leaves of one ONNX model, as JSON; run by claiming.py in an environment with apache-tvm.

    python bench/claiming_tvm.py MODEL.onnx CLAIMED

CLAIMED lists the convolutions that are claimed by their place among all, in the order of the graph: `0,3,7`. They are
asked for in NHWC with OHWI kernels, others in NCHW; pools and whatever else has a rule follow, as TVM has it.
"""

from __future__ import annotations

import json
import sys
import warnings
from math import prod
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

LAYOUTS = {
    "relax.nn.conv1d": (["NWC", "OWI"], ["NCW", "OIW"]),
    "relax.nn.conv2d": (["NHWC", "OHWI"], ["NCHW", "OIHW"]),
    "relax.nn.conv3d": (["NDHWC", "ODHWI"], ["NCDHW", "OIDHW"]),
    "relax.nn.conv1d_transpose": (["NWC", "IWO"], ["NCW", "IOW"]),
    "relax.nn.conv2d_transpose": (["NHWC", "IHWO"], ["NCHW", "IOHW"]),
    "relax.nn.conv3d_transpose": (["NDHWC", "IDHWO"], ["NCDHW", "IODHW"]),
}


def calls(module: tvm.IRModule) -> list[tuple[Any, relax.Call]]:
    """(variable, call) of the main function, in order."""
    bindings = (binding for block in module["main"].body.blocks for binding in block.bindings)
    return [(b.var, b.value) for b in bindings if isinstance(getattr(b, "value", None), relax.Call)]


def left(module: tvm.IRModule) -> tuple[int, int]:
    """Layout transforms of values that depend on an input and move more than axes of extent 1; their bytes."""
    constants: set[Any] = set()
    count = size = 0
    for variable, call in calls(module):
        if all(isinstance(argument, tvm.ir.GenericConst) or argument in constants for argument in call.args):
            constants.add(variable)
        elif getattr(call.op, "name", "") in ("relax.permute_dims", "relax.layout_transform"):
            moved = bytes_of(call)
            count += moved > 0
            size += moved
    return count, size


def bytes_of(call: relax.Call) -> int:
    """The bytes that a transform gives; 0 where it moves axes of extent 1 alone.

    Raises:
        ValueError: an extent is not known.
    """
    told = call.args[0].ty
    if not all(isinstance(dim, tvm.tirx.IntImm) for dim in told.shape.values):
        raise ValueError(f"an extent of a transposed value is not known: {told}")
    shape = [int(dim) for dim in told.shape.values]
    axes = [int(axis) for axis in call.attrs.axes or range(len(shape))[::-1]]
    large = [axis for axis in axes if shape[axis] != 1]
    return 0 if large == sorted(large) else prod(shape) * tvm.DataType(str(told.dtype)).itemsize


def main() -> None:
    warnings.simplefilter("ignore")
    path, claimed = sys.argv[1], {int(word) for word in sys.argv[2].split(",") if word}
    module = from_onnx(onnx.load(path), keep_params_in_input=False)
    convolutions = [call for _, call in calls(module) if getattr(call.op, "name", "") in LAYOUTS]

    def layout_for(call: Any) -> dict[str, list[str]]:
        place = next((place for place, held in enumerate(convolutions) if held.same_as(call)), None)
        return {} if place is None else {call.op.name: LAYOUTS[call.op.name][0 if place in claimed else 1]}

    convert = relax.transform.ConvertLayout({name: ways[0] for name, ways in LAYOUTS.items()}, layout_for)
    passes = [convert, relax.transform.FoldConstant(), relax.transform.DeadCodeElimination()]
    after = left(tvm.transform.Sequential(passes)(module))
    print(json.dumps({"convolutions": len(convolutions), "before": left(module), "left": after}))


if __name__ == "__main__":
    main()
