"""Every pass that rewrites a graph or a draft, in order: its function, what it requires, what it ends.

1. A pass runs at one `Stage`. At `LISTED_STAGES` a target lists those that run, in order (`Target.lowering`); at the
   others all run, for each result that is a `.tflite`.
2. The whole list is checked when a target is created. Passes of which neither ends what the other requires may stand in
   any order.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import onnx
import onnx_ir as ir

from relayout import arguments
from relayout.errors import ExtensionError, InvalidModelError, LayoutError, nearest
from relayout.graph.passes import Pass, Stage, check_order
from relayout.rules import outputs_of
from relayout.rules.registry import has_rule
from relayout.rules.users_functions import UsersFunction, place_of

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


def _rows(stage: Stage, room: str, *rows: tuple[Any, ...]) -> Iterator[Pass]:
    """Yield passes of a stage: name, function in a room, what it requires, what it ends."""
    for name, function, *facts in rows:
        yield Pass(name, f"{room}.{function}", "", stage, *facts)


PASSES: Mapping[str, Pass] = {  # name -> pass, in the order in which they run for a target that lists nothing
    row.name: row
    for row in (
        *_rows(
            Stage.SOURCE,
            "formats",
            ("define-quantizers", "onnx.source_passes.define_quantizers_first"),
            ("standard-domains", "tflite.exporting.preparing.name_standard_operators"),
            ("restore-builtins", "tflite.exporting.restoring.restore_builtins", (SPELLED_OUT,)),
            ("restore-variables", "tflite.exporting.restoring.restore_variables", (SPELLED_OUT,)),
            ("fold-empty-inputs", "tflite.exporting.preparing.replace_empty_inputs"),
            ("decode-narrow-floats", "tflite.exporting.preparing.decode_narrow_floats"),
            ("sign-few-bits", "tflite.exporting.blocks.sign_few_bits"),
            ("rank-reductions", "tflite.exporting.preparing.rank_reductions"),
            ("inline-sequences", "tflite.exporting.loops.inline_sequences"),
            ("fold-constants", "onnx.folding.fold", (), (SPELLED_OUT,)),
            ("fold-weights", "onnx.folding.fold_weights", (), (SPELLED_OUT,)),
            ("inline-branches", "onnx.source_passes.inline_branches"),
            ("open-recurrences", "tflite.exporting.preparing.open_recurrences", (SEQUENCES,)),
            ("write-out-loops", "tflite.exporting.loops.write_out"),
            ("define", "tflite.exporting.preparing.define", (), (SPELLED_OUT,)),
            ("remove-unread", "onnx.source_passes.remove_unread"),
            ("list-coordinates", "tflite.exporting.preparing.list_coordinates_first"),
            ("batch-first-rows", "tflite.exporting.preparing.mark_batch_first", (SEQUENCES,), (SEQUENCES,)),
        ),
        Pass(
            "qlinear-to-qdq",
            "lowering.qlinear_to_qdq.qlinear_to_qdq",
            "operators on integers as quantized units",
            requires=(UNITS,),
        ),
        Pass(
            "recognise-gelu",
            "lowering.recognise_layer_norm.recognise_gelu",
            "operators that were spelled out",
            requires=(UNITS,),
        ),
        Pass("drop-expand", "lowering.decompose.drop_expand", "Expands that their readers do themselves"),
        Pass(
            "keep-integers",
            "targets.litert.keep_integers.keep_integers",
            "quantized units that stay on integers",
            requires=(UNITS,),
            column="prefers_integers",
        ),
        Pass(
            "fold-affine",
            "lowering.fold_affine.fold_scales",
            "scales and shifts in the weights of convolutions",
            requires=(CHANNELS, CONVOLUTIONS),
            column="fusions",
        ),
        Pass(
            "decompose",
            "lowering.decompose.expand",
            "operators replaced by others",
            requires=(UNITS,),
            column="expansions",
        ),
        Pass(
            "keep-float",
            "lowering.quantized_units.keep_reals",
            "quantized units that stay on real numbers",
            requires=(UNITS,),
            column="units",
        ),
        Pass(
            "qdq-to-integer",
            "lowering.quantized_units.fuse_units",
            "quantized units that run on integers",
            requires=(UNITS,),
            ends=(UNITS,),
            column="units",
        ),
        Pass(
            "pad-channels",
            "lowering.pad_channels.pad_channels",
            "values with more channels",
            requires=(CONVOLUTIONS,),
            ends=(CHANNELS,),
            column="blocks",
        ),
        Pass(
            "fuse-epilogue",
            "lowering.fuse_epilogue.fuse_kernels",
            "taken in by the convolutions before them",
            requires=(CONVOLUTIONS,),
            ends=(CONVOLUTIONS,),
            column="fusions",
        ),
        Pass(
            "split-transposes",
            "lowering.split_transposes.split_transposes",
            "Transposes in two steps",
            Stage.PLACED,
            requires=(TRANSPOSES,),
            ends=(TRANSPOSES,),
            column="least_run",
        ),
        Pass(
            "int8-weights-to-uint8",
            "lowering.int8_weights_to_uint8.avoid_saturation",
            "kernels of int8 stored as uint8",
            Stage.FINAL,
            requires=(SHAPES,),
        ),
        Pass(
            "merge-block-dims",
            "targets.onnxruntime.cpu_guard.state_blocks",
            "kernels in blocks of channels",
            Stage.FINAL,
            requires=(SHAPES,),
            ends=(SHAPES,),
            column="blocks",
        ),
        *_rows(
            Stage.EXPORT,
            "targets.litert",
            ("products-of-einsums", "einsum_products.write_einsums"),
            ("slow-operators", "slow_operators.rewrite_slow_operators"),
            ("move-views-out", "quantized_units.move_views_out"),
            ("read-integers", "integer_scales.read_integers", (VIEWS_OUTSIDE,)),
            ("separate-activations", "quantized_units.separate_activations", (VIEWS_OUTSIDE,)),
            ("symmetric-operands", "integer_scales.make_second_operands_symmetric", (VIEWS_OUTSIDE,)),
        ),
        *_rows(
            Stage.DRAFT,
            "formats.tflite.exporting",
            ("tidy", "tidying.tidy", (SINGLE_ACTIVATIONS, ENDS)),
            ("quantizable", "quantizable.make_quantizable", (SINGLE_ACTIVATIONS, ENDS)),
            ("target-forms", "file_forms.write_in_forms", (SINGLE_ACTIVATIONS, ENDS)),
            ("fuse", "fusing.fuse", (SINGLE_ACTIVATIONS, ENDS), (SINGLE_ACTIVATIONS,)),
            ("fuse-lone-activations", "quantizable.fuse_lone_activations", (ENDS,)),
            ("free-scales", "kernel_types.free_scales", (SCALES, ENDS), (SCALES,)),
            ("interface-scales", "integers.give_meaning", (ENDS,)),
            ("write-variables", "variables.write_variables", (ENDS,), (ENDS,)),
            ("write-tables", "variables.write_tables"),
            ("finish-target-forms", "file_forms.finish_forms", (ANY_BUILTIN,)),
            ("runtime-builtins", "older.write_with", (ANY_BUILTIN,), (ANY_BUILTIN,)),
            ("separate-operands", "tidying.separate_operands", (OPERANDS,), (OPERANDS,)),
            ("separate-memory", "tidying.separate"),
        ),
        Pass("tables-of-functions", "lowering.tabulate_functions.with_tables", stage=Stage.WRITTEN),
    )
}
_REPEATED = "rank-reductions inline-sequences fold-constants fold-weights inline-branches open-recurrences"
REPEATED = frozenset(f"{_REPEATED} write-out-loops define".split())
"""Passes that run again, with their neighbours that repeat, until none of them returns that it changed anything."""
ON_FIXING = frozenset({"fold-constants", "inline-branches", "remove-unread"})
"""Those that run for an ONNX result of an ONNX source, too, where `--dim` gives extents numbers, or none is open and
there is a target."""
FOR_TARGETS = frozenset({"define-quantizers"})  # those that run for such a result, too, where there is a target
LISTED_STAGES = (Stage.GRAPH, Stage.PLACED, Stage.FINAL)
BY_DEFAULT = tuple(row.name for row in PASSES.values() if row.column)
"""The list of a target that states none: each pass that does nothing for a target without rows for it."""


class Listing(Protocol):
    """A target as passes see it: besides, they take its columns by name."""

    @property
    def lowering(self) -> Sequence[str | Pass]:
        """The passes that it lists."""


def passes_of(stage: Stage) -> list[Pass]:
    """Return the passes of a stage that always run, in order."""
    return [row for row in PASSES.values() if row.stage == stage]


def passes_for(target: Listing) -> list[Pass]:
    """Return the passes that a target lists and that have something to do for it, stage by stage."""
    rows = [each if isinstance(each, Pass) else PASSES[each] for each in target.lowering]
    return sorted((row for row in rows if not row.column or getattr(target, row.column)), key=lambda row: row.stage)


def lower(model: ir.Model, target: Listing | None, stage: Stage) -> tuple[str, ...]:
    """Run the passes that a target lists for a stage, in place; return what a report says of them.

    Raises:
        ExtensionError: a user's pass raises something, or what it leaves is not valid.
    """
    notes: list[str] = []
    for row in [] if target is None else [each for each in passes_for(target) if each.stage == stage]:
        users = row.function if isinstance(row.function, UsersFunction) else None
        was_valid = users is not None and not _fault(model)
        said: Mapping[str, int] | Sequence[str] = row.run(target, model=model, target=target)
        if users is not None:
            from relayout.formats.onnx.completing import complete

            if was_valid and (fault := _fault(model)):
                raise ExtensionError(f"{place_of(users.what, users.function)}: behind it {fault}")
            complete(model, outputs_of)  # what is new has no types and shapes
        if isinstance(said, Mapping):
            counts = [f"{count} {what}" for what, count in said.items() if count]
            said = [f"{row.line or row.name}: {', '.join(counts)}"] if counts else []
        notes += said
    return tuple(notes)


def _fault(model: ir.Model) -> str:
    """Return what is not valid in a model."""
    from relayout.formats.onnx.checking import check

    try:
        check(model)
    except InvalidModelError as error:
        return str(error)
    return ""


FACTS = sorted({fact for row in PASSES.values() for fact in (*row.requires, *row.ends)})
_OWN = {  # what a pass of a target's own takes
    "name": arguments.WORDS,
    "function": arguments.FUNCTION,
    **dict.fromkeys(("line", "column"), arguments.TEXT),
    "stage": arguments.ArgumentKind("Stage.GRAPH, Stage.PLACED or Stage.FINAL", lambda value: value in LISTED_STAGES),
    **dict.fromkeys(
        ("requires", "ends"), arguments.several(f"a tuple of facts, such as {(UNITS,)}", arguments.TEXT.fits)
    ),
}


def check_passes(listed: Sequence[str | Pass], columns: Sequence[str], where: str = "") -> None:
    """Hold a target's list of passes, between those of a `.tflite` result, to what each requires.

    Args:
        listed: names of passes, and passes of the target's own.
        columns: what such a pass may take besides `model`.
        where: what a message begins with.

    Raises:
        LayoutError: a pass is not known, is listed twice, states or takes what is not known, or stands behind one that
            ends what it requires.
    """
    standing = {name: row for name, row in PASSES.items() if row.stage in LISTED_STAGES}
    rows: dict[str, Pass] = {}
    for each in listed:
        name = each.name if isinstance(each, Pass) else each
        if isinstance(each, Pass):
            _check_own(each, f"{where}pass {name!r}", ("model", *columns))
        elif name not in standing:
            raise LayoutError(f"{where}there is no lowering pass {name!r}{nearest(name, standing)}")
        if name in rows:
            raise LayoutError(f"{where}lowering pass {name!r} is listed twice")
        rows[name] = each if isinstance(each, Pass) else standing[each]
    always = (row for name, row in PASSES.items() if name not in standing)
    check_order(sorted((*rows.values(), *always), key=lambda row: row.stage), where)


def _check_own(own: Pass, where: str, columns: Sequence[str]) -> None:
    arguments.check(own._asdict(), _OWN, where=f"{where}: ", error=LayoutError)
    if own.name in PASSES:
        raise LayoutError(f"{where} is one of relayout's: give yours another name")
    for fact in (*own.requires, *own.ends):
        if fact not in FACTS:
            raise LayoutError(f"{where} states {fact!r}, which no other pass does{nearest(fact, FACTS)}")
    try:
        parameters = own.parameters()
    except (TypeError, ValueError):  # None, a class
        raise LayoutError(f"{where}: {own.function!r} does not say what it takes: write a function") from None
    fields = [name for name in columns if name not in ("model", "target")]
    for names, known in (((own.column,), fields), (parameters, columns)):
        for name in filter(None, names):
            if name not in known:
                raise LayoutError(f"{where} takes {name!r}, which no target has{nearest(name, known)}")
