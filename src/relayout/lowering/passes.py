"""Every pass that rewrites a graph or a draft, in order: what it runs on, what it requires, what it ends.

1. A pass runs at one stage: on the graph as it was read, before or after layouts are chosen, or on the draft of a file.
2. A target lists those that tune a graph for it (`Target.lowering`); those that a format needs always run.
3. The whole list is checked when a target is created. Passes of which neither ends what the other requires may stand in
   any order.

`relayout.targets.target_passes` runs them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, nearest
from relayout.rules.registry import has_rule

# Columns of a target's tables whose entries are looked up: a name that does not exist would claim nothing.

_DEPTHWISE = 'Conv with when = "DEPTHWISE"'
_PRODUCTS = "Gemm and MatMul"
NAMES_OF_VENDORS = {  # Vendors' name of an operator, in small letters -> the name that a table uses
    **dict.fromkeys(("depthwiseconv", "depthwiseconv2d", "depthwiseconvolution"), _DEPTHWISE),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), "Conv"),
    **dict.fromkeys(("transposeconv", "conv2dtranspose", "deconv", "deconvolution"), "ConvTranspose"),
    **dict.fromkeys(("fullyconnected", "dense", "linear", "innerproduct"), _PRODUCTS),
    **dict.fromkeys(("avgpool", "avgpool2d", "averagepool2d"), "AveragePool"),
    **dict.fromkeys(("maxpool2d", "maxpooling"), "MaxPool"),
    "batchmatmul": "MatMul",
    "batchnorm": "BatchNormalization",
    "concatenation": "Concat",
    "layernorm": "LayerNormalization",
    "logistic": "Sigmoid",
    "relu6": "Clip",
    "resizebilinear": "Resize",
    "stridedslice": "Slice",
}
_TYPES = tuple(ir.DataType.__members__)
_USUAL_TYPES = ("FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "INT32", "BOOL")


def check_types(names: Sequence[str], where: str) -> None:
    """Look element types up.

    Raises:
        LayoutError: there is none of a name.
    """
    for name in names:
        if name not in ir.DataType.__members__:
            near = nearest(name, _TYPES) or f"; they are called {', '.join(_USUAL_TYPES)}, …"
            raise LayoutError(f"{where}no element type {name!r}{near}")


def check_operators(names: Sequence[str]) -> None:
    """Look operators of ONNX's own domain up: those of the standard, and those that have a rule here.

    Raises:
        LayoutError: there is none of a name.
    """
    for name in names:
        if not has_rule(("", name)) and not onnx.defs.has(name):
            raise LayoutError(f"ONNX has no operator {name!r}{_instead(name)}")


def _instead(name: str) -> str:
    """Return what a message adds to the name of an operator that ONNX does not have."""
    if written := NAMES_OF_VENDORS.get(name.casefold().replace("_", "")):
        return f"; write {written}"
    domain, _, operator = name.rpartition(":")
    if domain:
        return f"; a row for one of another domain has its name, {operator}, and domain = {json.dumps(domain)}"
    return nearest(name, sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))


class Stage(IntEnum):
    """The subject of a pass, in the order of a conversion."""

    SOURCE = 0  # the graph of a model that was read, until nothing changes any more
    GRAPH = 1  # the graph, before its layouts are chosen
    PLACED = 2  # the graph, in the layouts that were chosen
    FINAL = 3  # the graph as it is written: what the target has no functions for is in place
    DRAFT = 4  # the draft of a `.tflite`: its operators, tensors and variables


SPELLED_OUT = "nodes that spell a builtin out, as they were read"
SEQUENCES = "recurrent operators with steps first"
UNITS = "quantized units as in the source"
CHANNELS = "channels as in the source"
CONVOLUTIONS = "convolutions of the standard"
TRANSPOSES = "Transposes as the plan has them"
SHAPES = "shapes that name each axis"
VIEWS_OUTSIDE = "quantized units without Transposes and Reshapes inside"
SINGLE_ACTIVATIONS = "activations as operators of their own"
SCALES = "one scale for tensors that share their integers"
ENDS = "variables as inputs and outputs"
ANY_BUILTIN = "builtins of any runtime"
OPERANDS = "operands that share memory"


class PassRow(NamedTuple):
    """One pass."""

    name: str  # how a target lists it, and an error names it
    line: str  # what it makes, as a report says it
    stage: Stage  # what it runs on
    requires: frozenset[str] = frozenset()  # facts that must hold before it
    ends: frozenset[str] = frozenset()  # facts that no longer hold behind it
    file_format: str = ""  # the format of results for which it always runs, `tflite`; "": a target lists it
    repeats: bool = False  # it runs again, with its neighbours that repeat, until none of them changes anything
    # it runs for an ONNX result of an ONNX source, too, where `--dim` gives extents numbers, or none is open and there
    # is a target
    on_fixing: bool = False
    for_targets: bool = False  # it runs for an ONNX result of an ONNX source, too, where there is a target


def _rows(
    stage: Stage,
    *rows: tuple[str, str, set[str], set[str]],
    repeats: str = "",
    on_fixing: str = "",
    for_targets: str = "",
    file_format: str = "",
) -> Iterator[PassRow]:
    """Return the passes of a stage; `repeats`, `on_fixing` and `for_targets` name those of which that holds."""
    for name, line, requires, ends in rows:
        facts = frozenset(requires), frozenset(ends)
        flags = (name in names.split() for names in (repeats, on_fixing, for_targets))
        yield PassRow(name, line, stage, *facts, file_format, *flags)


PASSES: Mapping[str, PassRow] = {  # name -> pass, in the order in which they run for a target that lists nothing
    row.name: row
    for row in (
        *_rows(
            Stage.SOURCE,
            ("define-quantizers", "quantizers of QONNX as operators of the standard", set(), set()),
            ("standard-domains", "operators of com.microsoft that the standard took over", set(), set()),
            ("restore-builtins", "builtins that the nodes spelled out", {SPELLED_OUT}, set()),
            ("restore-variables", "resource variables that the nodes spelled out", {SPELLED_OUT}, set()),
            ("fold-empty-inputs", "constants in place of inputs without elements", set(), set()),
            ("decode-narrow-floats", "weights in bfloat16 and in floats of 8 and 4 bits as real numbers", set(), set()),
            ("sign-few-bits", "constants of few bits as signed integers", set(), set()),
            ("rank-reductions", "ranks of reductions over computed axes", set(), set()),
            ("inline-sequences", "sequences as the tensors that they hold", set(), set()),
            ("fold-constants", "nodes of small constants, computed", set(), {SPELLED_OUT}),
            ("fold-weights", "weights that follow from others, computed", set(), {SPELLED_OUT}),
            ("inline-branches", "Ifs of constant conditions as their branches", set(), set()),
            ("open-recurrences", "many steps as loops, last steps as states, small ones as one", {SEQUENCES}, set()),
            ("write-out-loops", "Scans as Loops, and short Loops step by step", set(), set()),
            ("define", "operators without an export as the standard defines them", set(), {SPELLED_OUT}),
            ("remove-unread", "nodes that nothing reads, removed", set(), set()),
            ("list-coordinates", "NonZero as the builtin that lists coordinates row by row", set(), set()),
            ("batch-first-rows", "recurrent operators that may take the batch first", {SEQUENCES}, {SEQUENCES}),
            file_format="tflite",
            repeats="rank-reductions inline-sequences fold-constants fold-weights inline-branches open-recurrences"
            " write-out-loops define",
            on_fixing="fold-constants inline-branches remove-unread",
            for_targets="define-quantizers",
        ),
        *_rows(
            Stage.GRAPH,
            ("qlinear-to-qdq", "operators on integers as quantized units", {UNITS}, set()),
            ("recognise-gelu", "operators that were spelled out", {UNITS}, set()),
            ("drop-expand", "Expands that their readers do themselves", set(), set()),
            ("keep-integers", "quantized units that stay on integers", {UNITS}, set()),
            ("fold-affine", "scales and shifts in the weights of convolutions", {CHANNELS, CONVOLUTIONS}, set()),
            ("decompose", "operators replaced by others", {UNITS}, set()),
            ("keep-float", "quantized units that stay on real numbers", {UNITS}, set()),
            ("qdq-to-integer", "quantized units that run on integers", {UNITS}, {UNITS}),
            ("pad-channels", "values with more channels", {CONVOLUTIONS}, {CHANNELS}),
            ("fuse-epilogue", "taken in by the convolutions before them", {CONVOLUTIONS}, {CONVOLUTIONS}),
        ),
        *_rows(
            Stage.PLACED,
            ("split-transposes", "Transposes in two steps", {TRANSPOSES}, {TRANSPOSES}),
        ),
        *_rows(
            Stage.FINAL,
            ("int8-weights-to-uint8", "kernels of int8 stored as uint8", {SHAPES}, set()),
            ("merge-block-dims", "kernels in blocks of channels", {SHAPES}, {SHAPES}),
        ),
        *_rows(
            Stage.FINAL,
            ("products-of-einsums", "Einsums as products of matrices, for any target", set(), set()),
            ("slow-operators", "operators that kernels run faster as others", set(), set()),
            ("move-views-out", "Transposes and Reshapes outside of quantized units", set(), set()),
            ("read-integers", "ArgMax and ArgMin of integers", {VIEWS_OUTSIDE}, set()),
            ("separate-activations", "activations as quantized units of their own", {VIEWS_OUTSIDE}, set()),
            ("symmetric-operands", "second operands of products with a zero point of 0", {VIEWS_OUTSIDE}, set()),
            file_format="tflite",
        ),
        *_rows(
            Stage.DRAFT,
            ("tidy", "operators that do nothing, removed", {SINGLE_ACTIVATIONS, ENDS}, set()),
            ("quantizable", "forms that quantizers know", {SINGLE_ACTIVATIONS, ENDS}, set()),
            ("target-forms", "forms that the target takes", {SINGLE_ACTIVATIONS, ENDS}, set()),
            (
                "fuse",
                "activations and biases in the operators before them",
                {SINGLE_ACTIVATIONS, ENDS},
                {SINGLE_ACTIVATIONS},
            ),
            ("fuse-lone-activations", "activations behind nothing, fused for a quantizer", {ENDS}, set()),
            ("free-scales", "a scale of its own for each tensor of moved integers", {SCALES, ENDS}, {SCALES}),
            ("interface-scales", "scales of inputs and outputs that are only moved", {ENDS}, set()),
            ("write-variables", "resource variables, read first and assigned last", {ENDS}, {ENDS}),
            ("write-tables", "tables of a hash, filled once", set(), set()),
            ("finish-target-forms", "what the target takes, looked at operator by operator", {ANY_BUILTIN}, set()),
            ("runtime-builtins", "operators as builtins that the runtime has", {ANY_BUILTIN}, {ANY_BUILTIN}),
            ("separate-operands", "copies of operands that are given twice", {OPERANDS}, {OPERANDS}),
            ("separate-memory", "copies of inputs that are outputs, too", set(), set()),
            file_format="tflite",
        ),
    )
}
IN_ORDER = tuple(row.name for row in PASSES.values() if not row.file_format)
"""Every pass that a target lists: one whose rows a target does not have does nothing."""


def passes_of(
    names: Sequence[str],  # the target's list
    file_format: str,  # of the result, `onnx` or `tflite`
    stage: Stage | None = None,  # that one alone; None: all
) -> list[PassRow]:
    """Return the passes of a result in order: stage by stage those of a target's list, then those of the format."""
    listed = [PASSES[name] for name in names]
    rows = [
        row
        for row in (*listed, *PASSES.values())
        if row.file_format == file_format or (not row.file_format and row in listed)
    ]
    return sorted(dict.fromkeys(row for row in rows if stage in (None, row.stage)), key=lambda row: row.stage)


def check_passes(names: Sequence[str], where: str = "") -> None:
    """Hold a target's list of passes, between those of a `.tflite` result, to what each requires.

    Raises:
        LayoutError: a pass is not known, is listed twice, or stands behind one that ends what it requires.
    """
    stage = Stage.SOURCE
    for place, name in enumerate(names):
        if name not in IN_ORDER:
            raise LayoutError(f"{where}there is no lowering pass {name!r}{nearest(name, IN_ORDER)}")
        if name in names[:place]:
            raise LayoutError(f"{where}lowering pass {name!r} is listed twice")
        if PASSES[name].stage < stage:
            raise LayoutError(f"{where}{name!r} runs before layouts are chosen: list it before those that run after")
        stage = PASSES[name].stage
    ended: dict[str, str] = {}
    for row in passes_of(names, "tflite"):
        for fact in sorted(row.requires & ended.keys()):
            raise LayoutError(f"{where}{row.name!r} requires {fact}, which {ended[fact]!r} before it ends: swap them")
        ended |= dict.fromkeys(row.ends, row.name)
