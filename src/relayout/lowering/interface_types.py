"""Element types of an interface: `--input-type uint8`, `--output-type float32`, and `--input-type int32` for ids.

Inputs and outputs of int64 become such of int32, with a Cast between them and the graph.

An input is quantized if DequantizeLinears alone read its integers, or QuantizeLinears alone its real numbers, all with
one scale and zero point, perhaps behind Transposes and Reshapes; an output likewise, by what gives it. Between such an
end and the graph come a DequantizeLinear, a QuantizeLinear, or both. Every value inside stays what it was.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import LayoutError, NamesError, nearest
from relayout.graph.quantized_unit import BYTES, DEQUANTIZE, QUANTIZE, QUANTIZING_DOMAINS, Scale, bytes_of, is_view_node
from relayout.graph.walks import behind, readers_behind
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.stored_as import Holds
from relayout.lowering.constants import Constants
from relayout.rules.quantization import undoes

# Inputs that the model itself normalizes: `--normalize image=127.5:127.5`.
#
#     x -> MaxPool    becomes    x -> Sub(mean) -> Div(std) -> MaxPool
#
# Convolutions take it into their kernels where that computes the same (`fold_affine.py`). A caller then feeds
# raw numbers, such as pixels from 0 to 255.

Numbers = tuple[Sequence[float], Sequence[float]]  # means and standard deviations: one of each, or one for each channel
BROADCASTS = 7  # the first opset in which Sub and Div broadcast without an attribute
FLOATS = {ir.DataType.FLOAT: np.float32, ir.DataType.FLOAT16: np.float16, ir.DataType.DOUBLE: np.float64}


def numbers_by_input(options: Mapping[str, Sequence[float | Sequence[float]]] | None) -> dict[str, Numbers]:
    """Return what a user asks of inputs, one number or several, as tuples."""
    numbers: dict[str, Numbers] = {}
    for name, pair in (options or {}).items():
        mean, std = (tuple(map(float, each)) if isinstance(each, Sequence) else (float(each),) for each in pair)
        numbers[name] = (mean, std)
    return numbers


def source_types(model: ir.Model, names: Iterable[str]) -> dict[str, ir.DataType | None]:
    """Return the element types of inputs that shall be normalized, before another option changes them.

    Raises:
        NamesError: there is no such input.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    for name in names:
        if name not in inputs:
            raise NamesError(f"--normalize: there is no input '{name}'{nearest(name, inputs)}")
    return {name: inputs[name].dtype for name in names}


def normalize_inputs(
    model: ir.Model,
    normalizations: Mapping[str, Numbers],  # input -> (means, standard deviations)
    # `uint8` if these are fed as pixels, which a Cast makes real numbers; else they stay what they are
    input_type: str | None,
    types: Mapping[str, ir.DataType | None],  # input -> its element type in the source, as `source_types` gives it
) -> tuple[str, ...]:
    """Let a model normalize inputs, in place.

    Returns:
        A sentence for the report about each of the inputs.

    Raises:
        LayoutError: the input has no real numbers, or no axis of as many channels, or its pixels would be int8.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    if not normalizations:
        return ()
    if model.graph.opset_imports.get("", BROADCASTS) < BROADCASTS:
        raise LayoutError(f"--normalize: it needs a model of opset {BROADCASTS} or newer")
    constants = Constants(model)
    for name, (mean, std) in normalizations.items():
        value = inputs[name]
        _refuse_integers(value, input_type, types[name])
        _normalize(model.graph, constants, value, _checked(value, mean, std))
        if input_type == "uint8":  # its readers read real numbers of pixels
            dtype, value.type = value.dtype or ir.DataType.FLOAT, ir.TensorType(ir.DataType.UINT8)
            _begin_with(model.graph, value, [_cast(constants, value, "real", dtype)])
        elif input_type not in (None, "float32"):
            raise LayoutError(
                f"--input-type {input_type}: pixels are 0 to 255, so input '{name}', which --normalize names, can be"
                " uint8 or float32"
            )
    fed = "uint8, fed as it is" if input_type == "uint8" else "fed as it is"
    sentences = [
        f"input {name}: {fed}, normalized here: ({name} - {_text(mean)}) / {_text(std)}"
        for name, (mean, std) in normalizations.items()
    ]
    for name, pair in normalizations.items() if input_type == "uint8" else ():
        if all(max(map(abs, numbers)) < 1 for numbers in pair):  # those of images from 0 to 1, or from -1 to 1
            sentences.append(_of_pixels(name, pair))
    return tuple(sentences)


PIXEL = 255  # the largest pixel of 8 bits


def _of_pixels(name: str, pair: Numbers) -> str:
    """Return what is said of numbers that do not fit pixels: those that do."""
    means, stds = (",".join(f"{each * PIXEL:.6g}" for each in numbers) for numbers in pair)
    return (
        f"input {name} takes pixels from 0 to {PIXEL}, and these numbers are of images from 0 to 1:"
        f" of pixels they are --normalize {name}={means}:{stds}"
    )


def _refuse_integers(value: ir.Value, input_type: str | None, before: ir.DataType | None) -> None:
    """Refuse an input that has no real numbers, in the source or by `--input-type`.

    Raises:
        LayoutError: it has none. The message names the type in the source.
    """
    if value.dtype in FLOATS:
        return
    kind = "of no known type" if before is None else before.name.lower()
    said = f"the input is {kind} and quantized" if before in FLOATS else f"the input is {kind}, not float"
    remedy = "--input-type float32 makes a quantized one so; how a quantized one takes pixels as uint8:"
    if input_type == "uint8":
        remedy = (
            "--input-type uint8 alone takes pixels, where the integer is the pixel; for others --input-type float32:"
        )
    raise LayoutError(f"--normalize {value.name}: {said} ({remedy} docs/how-to/interface.md, Raw pixels)")


def _checked(value: ir.Value, mean: Sequence[float], std: Sequence[float]) -> Normalization:
    """Return what is asked of an input of real numbers, with the axis of its channels."""
    option = f"--normalize {value.name}"
    dtype = value.dtype or ir.DataType.FLOAT
    if value.is_graph_output():
        raise LayoutError(f"{option}: the input is an output, too")
    if value.is_initializer():
        raise LayoutError(f"{option}: the input has a default, which is no raw number")
    count = max(len(mean), len(std))
    if not {len(mean), len(std)} <= {1, count} or not all(std) or not np.isfinite([*mean, *std]).all():
        raise LayoutError(f"{option}: as many means as standard deviations, all finite, and none of the latter 0")
    with np.errstate(over="ignore"):
        written = [np.array(each, np.float64).astype(FLOATS[dtype]) for each in (mean, std)]
    if not np.isfinite(np.concatenate(written)).all() or not written[1].all():
        raise LayoutError(f"{option}: {dtype.name.lower()} cannot hold these numbers")
    means, stds = (tuple(map(float, each)) * (count // len(each)) for each in (mean, std))
    return Normalization(means, stds) if count == 1 else Normalization(means, stds, _channel_axis(value, count, option))


def _channel_axis(value: ir.Value, count: int, option: str) -> int:
    """Return the axis of the channels: the one that has this extent; the first of several axes is a batch."""
    dims = [] if value.shape is None else list(value.shape)
    axes = [axis for axis, dim in enumerate(dims) if dim == count and (axis or len(dims) == 1)]
    if len(axes) != 1:
        shown = "×".join(map(str, dims)) or "an input of unknown shape"
        matching = f"{len(axes)} axes" if axes else "no axis"
        raise LayoutError(
            f"{option}: {count} channels, and {matching} of that extent in {shown}; give one number for all"
        )
    return axes[0]


def _normalize(graph: ir.Graph, constants: Constants, value: ir.Value, normalization: Normalization) -> None:
    notes = value.metadata_props
    known = Normalization.load(notes.get(NORMALIZE, ""))
    of = (value.name or "") if known is None else known.of
    stated = normalization._replace(of=of).in_source(Holds.of(notes), list(value.shape or ()))
    notes[NORMALIZE] = (stated if known is None else known.after(stated)).dump()
    shape = [] if value.shape is None else list(value.shape)
    from relayout.lowering.fold_affine import fold_normalization

    _insert(graph, constants, value, fold_normalization(constants, value, normalization).spread(shape))


def _insert(
    graph: ir.Graph, constants: Constants, value: ir.Value, numbers: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> None:
    """Put `(x - mean) / std` behind an input, in place, but for what changes nothing."""
    dtype = FLOATS[value.dtype or ir.DataType.FLOAT]
    result, nodes = value, []
    for (kind, word, neutral), array in zip((("Sub", "mean", 0), ("Div", "std", 1)), numbers, strict=True):
        if np.all(array == neutral):
            continue
        name = constants.names.unique(f"{value.name}/{word}")
        constant = constants.new(f"{name}/{kind}", array.astype(dtype))
        operand, result = result, ir.Value(name=name, type=value.type, shape=value.shape)
        nodes.append(ir.Node("", kind, [operand, constant], outputs=[result], name=name))
    if nodes:
        _begin_with(graph, value, nodes)


def _begin_with(graph: ir.Graph, value: ir.Value, nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Put nodes behind an input, in place, and return those that read what the last of them gives instead."""
    readers = [use for use in value.uses() if use.node not in nodes]
    for use in readers:
        use.node.replace_input_with(use.idx, nodes[-1].outputs[0])
    if len(graph):
        graph.insert_before(graph[0], nodes)
    else:
        graph.extend(nodes)
    return [use.node for use in readers]


def _cast(constants: Constants, value: ir.Value, word: str, dtype: ir.DataType) -> ir.Node:
    """Return a Cast of a value, named after it with a word."""
    name = constants.names.unique(f"{value.name}/{word}")
    result = ir.val(name, dtype, value.shape)
    return ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], outputs=[result], name=name)


def _text(numbers: Sequence[float]) -> str:
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"[{', '.join(f'{each:g}' for each in numbers)}]"


TYPES = {  # the types that can be asked for
    "float32": ir.DataType.FLOAT,
    "int8": ir.DataType.INT8,
    "uint8": ir.DataType.UINT8,
    "int32": ir.DataType.INT32,
}


def set_interface_types(
    model: ir.Model,  # the model. Ends that are not quantized stay as they are.
    inputs: str | None,  # `float32`, `int8` or `uint8` for inputs, or `int32` for those of int64; None leaves them
    outputs: str | None,  # the same for outputs
    # inputs that the model will normalize itself: real numbers of these may be fed as integers, too
    normalized: Collection[str] = (),
) -> tuple[str, ...]:
    """Give the quantized inputs and outputs of a model other element types, in place.

    Returns:
        A sentence for the report about each end that changed.

    Raises:
        LayoutError: none of the inputs, or of the outputs, is quantized, or of int64.
    """
    ends = _Ends(model)
    sentences: list[str] = []
    sides = (("input", inputs, model.graph.inputs), ("output", outputs, model.graph.outputs))
    for side, requested_type, values in sides:
        if requested_type is None:
            continue
        if TYPES[requested_type] == ir.DataType.INT32:
            sentences += ends.shorten(side, values)
            continue
        quantized = [(value, known) for value in values if (known := ends.quantization(value, side)) is not None]
        fed = [value for value in values if value.name in normalized and value.dtype in FLOATS]
        if not quantized and not (side == "input" and fed and TYPES[requested_type] in BYTES):
            types = ", ".join(f"{value.name} is {_name(value.dtype)}" for value in values[:4]) or "there are none"
            said = f"--{side}-type {requested_type}: no {side} is quantized with 8 bits and one scale ({types})"
            raise LayoutError(f"{said}; {_remedy(side, requested_type)}")
        for value, quantization in quantized:
            name, before, dtype = value.name, value.dtype, TYPES[requested_type]
            if before != dtype:
                (ends.change_input if side == "input" else ends.change_output)(value, quantization, dtype)
                sentences.append(f"{side} {name}: {_name(before)} in the source, {requested_type} here")
    return tuple(sentences)


def _remedy(side: str, requested_type: str) -> str:
    if requested_type == "float32":
        return f"leave --{side}-type out"
    if side == "output" or requested_type != "uint8":
        return "--quantize int8 --calibrate DATA quantizes it, for a .tflite result (docs/how-to/int8.md)"
    return "--normalize INPUT=MEAN:STD beside it makes real numbers of pixels (docs/how-to/interface.md, Raw pixels)"


def integer_ends(model: ir.Model) -> dict[str, tuple[float, int]]:
    """Return the quantized inputs and outputs that are integers, by name -> their scale and zero point."""
    ends = _Ends(model)
    quantization_of: dict[str, tuple[float, int]] = {}
    for side, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            known = ends.quantization(value, side) if value.dtype in BYTES and value.name else None
            if known is not None:
                quantization_of[value.name or ""] = (known.step, int(known.stated_zero[0]))
    return quantization_of


def _name(dtype: ir.DataType | None) -> str:
    return next((name for name, each in TYPES.items() if each == dtype), "?" if dtype is None else dtype.name.lower())


class _Ends:
    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self.constants = Constants(model)

    def quantization(self, value: ir.Value, side: str) -> Scale | None:
        """Return what the integers of an end mean, or would mean; None if it is not quantized."""
        first, second = (DEQUANTIZE, QUANTIZE) if side == "input" else (QUANTIZE, DEQUANTIZE)
        kind = first if value.dtype in BYTES else second
        behind_views = behind(value, is_view_node)
        before = None if behind_views is None else behind_views.producer()
        nodes = readers_behind(value, is_view_node) if side == "input" else [before]
        stated = [None if node is None else _stated(node, kind) for node in nodes]
        one = stated[0] if stated else None
        return one if one is not None and all(map(one.is_same, stated)) else None

    def shorten(self, side: str, values: Sequence[ir.Value]) -> list[str]:
        """Let inputs, or outputs, of int64 have int32; return a sentence about each.

        Raises:
            LayoutError: none is of int64.
        """
        long = [value for value in values if value.dtype == ir.DataType.INT64]
        if not long:
            types = ", ".join(f"{value.name} is {_name(value.dtype)}" for value in values[:4]) or "there are none"
            raise LayoutError(f"--{side}-type int32: no {side} is int64 ({types}); leave --{side}-type out")
        names = [value.name or "" for value in long]
        for name, value in zip(names, long, strict=True):
            if side == "input":
                value.dtype = ir.DataType.INT32
                _begin_with(self.graph, value, [_cast(self.constants, value, "int64", ir.DataType.INT64)])
            else:
                value.name = self.constants.names.unique(f"{name}/int64")
                self._end_with(value, name, [_cast(self.constants, value, "int32", ir.DataType.INT32)])
        return [f"{side} {name}: int64 in the source, int32 here" for name in names]

    def _end_with(self, value: ir.Value, name: str | None, nodes: Sequence[ir.Node]) -> None:
        """Let what the last of some nodes gives be the output in place of a value, under a name."""
        end = nodes[-1].outputs[0]
        end.name = name
        end.metadata_props.update(value.metadata_props)
        self.graph.extend(nodes)
        for place, output in enumerate(self.graph.outputs):
            if output is value:
                self.graph.outputs[place] = end

    def change_input(self, value: ir.Value, quantization: Scale, dtype: ir.DataType) -> None:
        """Let an input have another type."""
        before, value.dtype = value.dtype, dtype
        chain = self._chain(value, quantization, dtype, before)
        for node in _begin_with(self.graph, value, chain):  # what was quantized again is the input itself
            if node.op_type == QUANTIZE and undoes(node, chain[-1]):
                node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=False)
                self._drop(node)
        for node in reversed(chain):
            self._drop(node)

    def change_output(self, value: ir.Value, quantization: Scale, dtype: ir.DataType) -> None:
        """Let an output have another type. The value of the graph gets another name."""
        name = value.name
        value.name = self.constants.names.unique(f"{name}/{_name(value.dtype)}")
        self._end_with(value, name, self._chain(value, quantization, value.dtype, dtype))

    def _chain(
        self, value: ir.Value, quantization: Scale, begin: ir.DataType | None, end: ir.DataType | None
    ) -> list[ir.Node]:
        """Return the nodes from a value of one type to one of another that means the same."""
        nodes: list[ir.Node] = []
        for kind, dtype in ((DEQUANTIZE, begin), (QUANTIZE, end)):
            if dtype in BYTES:
                nodes.append(self._node(kind, value, quantization._replace(dtype=dtype)))
                value = nodes[-1].outputs[0]
        return nodes

    def _node(self, kind: str, value: ir.Value, quantization: Scale) -> ir.Node:
        scale, zero = map(self.constants.new, ("interface_scale", "interface_zero_point"), quantization.parameters)
        name = self.constants.names.unique(f"{value.name}/{kind}")
        dtype = ir.DataType.FLOAT if kind == DEQUANTIZE else quantization.dtype
        result = ir.val(name, dtype, value.shape)
        return ir.Node("", kind, [value, scale, zero], outputs=[result], name=name)

    def _drop(self, node: ir.Node) -> None:
        """Remove a node that nothing reads any longer."""
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            self.graph.remove(node, safe=True)


def _stated(node: ir.Node, op_type: str) -> Scale | None:
    """Return what a node of a type says of its integers; None where they have no 8 bits, or several scales."""
    is_end = node.op_type == op_type and node.domain in QUANTIZING_DOMAINS
    scale = node.inputs[1] if is_end else None
    return bytes_of(node) if scale is not None and scale.dtype == ir.DataType.FLOAT else None
