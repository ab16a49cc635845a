"""Inputs that the model itself normalizes: `--normalize image=127.5:127.5`.

    x -> MaxPool    becomes    x -> Sub(mean) -> Div(std) -> MaxPool

Convolutions take it into their kernels where that computes the same (`fold_normalization.py`). A caller then feeds
raw numbers, such as pixels from 0 to 255.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import LayoutError, NamesError, nearest
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.stored_as import Holds
from relayout.lowering.constants import Constants

Numbers = tuple[Sequence[float], Sequence[float]]
"""Means and standard deviations: one of each, or one for each channel."""
BROADCASTS = 7
"""The first opset in which Sub and Div broadcast without an attribute."""
FLOATS = {ir.DataType.FLOAT: np.float32, ir.DataType.FLOAT16: np.float16, ir.DataType.DOUBLE: np.float64}


def numbers_by_input(options: Mapping[str, Sequence[float | Sequence[float]]] | None) -> dict[str, Numbers]:
    """Return what a user asks of inputs, one number or several, as tuples."""
    numbers: dict[str, Numbers] = {}
    for name, pair in (options or {}).items():
        mean, std = (tuple(map(float, each)) if isinstance(each, Sequence) else (float(each),) for each in pair)
        numbers[name] = (mean, std)
    return numbers


def source_types(model: ir.Model, wanted: Iterable[str]) -> dict[str, ir.DataType | None]:
    """Return the element types of inputs that shall be normalized, before another option changes them.

    Raises:
        NamesError: there is no such input.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    for name in wanted:
        if name not in inputs:
            raise NamesError(f"--normalize: there is no input '{name}'{nearest(name, inputs)}")
    return {name: inputs[name].dtype for name in wanted}


def normalize_inputs(
    model: ir.Model,
    wanted: Mapping[str, Numbers],
    input_type: str | None,
    types: Mapping[str, ir.DataType | None],
) -> tuple[str, ...]:
    """Let a model normalize inputs, in place.

    Args:
        model: the model.
        wanted: input -> (means, standard deviations).
        input_type: `uint8` if these are fed as pixels, which a Cast makes real numbers; else they stay what they are.
        types: input -> its element type in the source, as `source_types` gives it.

    Returns:
        A sentence for the report about each of the inputs.

    Raises:
        LayoutError: the input has no real numbers, or no axis of as many channels, or its pixels would be int8.
    """
    inputs = {value.name or "": value for value in model.graph.inputs}
    if not wanted:
        return ()
    if model.graph.opset_imports.get("", BROADCASTS) < BROADCASTS:
        raise LayoutError(f"--normalize: it needs a model of opset {BROADCASTS} or newer")
    constants = Constants(model)
    for name, (mean, std) in wanted.items():
        _refuse_integers(inputs[name], input_type, types[name])
        _normalize(model.graph, constants, inputs[name], _checked(inputs[name], mean, std))
        if input_type not in (None, "float32"):
            _cast(model.graph, constants, inputs[name], input_type)
    fed = "uint8, fed as it is" if input_type == "uint8" else "fed as it is"
    return tuple(
        f"input {name}: {fed}, normalized here: ({name} - {_text(mean)}) / {_text(std)}"
        for name, (mean, std) in wanted.items()
    ) + tuple(_of_pixels(name, *pair) for name, pair in wanted.items() if input_type == "uint8" and _are_small(*pair))


PIXEL = 255
"""The largest pixel of 8 bits."""


def _are_small(mean: Sequence[float], std: Sequence[float]) -> bool:
    """Return whether means and deviations are those of images from 0 to 1, or from -1 to 1."""
    return max(map(abs, mean)) < 1 and max(map(abs, std)) < 1


def _of_pixels(name: str, mean: Sequence[float], std: Sequence[float]) -> str:
    """Return what is said of numbers that do not fit pixels: those that do."""
    means, stds = (",".join(f"{each * PIXEL:.6g}" for each in numbers) for numbers in (mean, std))
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


def _normalize(graph: ir.Graph, constants: Constants, value: ir.Value, wanted: Normalization) -> None:
    notes = value.metadata_props
    known = Normalization.load(notes.get(NORMALIZE, ""))
    of = (value.name or "") if known is None else known.of
    stated = wanted._replace(of=of).in_source(Holds.load(notes.get(Holds.KEY, "[]")), list(value.shape or ()))
    notes[NORMALIZE] = (stated if known is None else known.after(stated)).dump()
    shape = [] if value.shape is None else list(value.shape)
    from relayout.lowering.fold_normalization import fold_normalization

    _insert(graph, constants, value, fold_normalization(constants, value, wanted).spread(shape))


def _insert(
    graph: ir.Graph, constants: Constants, value: ir.Value, numbers: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> None:
    """Put `(x - mean) / std` behind an input, in place, but for what changes nothing."""
    readers = list(value.uses())
    dtype = FLOATS[value.dtype or ir.DataType.FLOAT]
    result, nodes = value, []
    for (kind, word, neutral), array in zip((("Sub", "mean", 0), ("Div", "std", 1)), numbers, strict=True):
        if np.all(array == neutral):
            continue
        name = constants.names.unique(f"{value.name}/{word}")
        constant = constants.new(f"{name}/{kind}", array.astype(dtype))
        operand, result = result, ir.Value(name=name, type=value.type, shape=value.shape)
        nodes.append(ir.Node("", kind, [operand, constant], outputs=[result], name=name))
    for use in readers:
        use.node.replace_input_with(use.idx, result)
    for node in reversed(nodes):
        if len(graph):
            graph.insert_before(graph[0], node)
        else:
            graph.append(node)


def _cast(graph: ir.Graph, constants: Constants, value: ir.Value, input_type: str | None) -> None:
    """Let an input be fed as pixels, in place: its readers read real numbers of them."""
    if input_type != "uint8":
        raise LayoutError(
            f"--input-type {input_type}: pixels are 0 to 255, so input '{value.name}', which --normalize names, can be"
            " uint8 or float32"
        )
    readers, dtype = list(value.uses()), value.dtype or ir.DataType.FLOAT
    name = constants.names.unique(f"{value.name}/real")
    real = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
    value.type = ir.TensorType(ir.DataType.UINT8)
    for use in readers:
        use.node.replace_input_with(use.idx, real)
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], outputs=[real], name=name)
    if len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def _text(numbers: Sequence[float]) -> str:
    return f"{numbers[0]:g}" if len(numbers) == 1 else f"[{', '.join(f'{each:g}' for each in numbers)}]"
