"""Quantize a `.tflite` as requested."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.errors import LayoutError, NamesError, RelayoutError, nearest_values
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor, array_content
from relayout.formats.tflite.container.versions import finished
from relayout.formats.tflite.container.writer import options, save
from relayout.graph.source_names import Names
from relayout.isolation.process import DiedError, Process
from relayout.progress import say
from relayout.quantization import findings
from relayout.quantization.masks import (
    Range,
    sums_with_masks,
    tests_for_infinity,
    with_ignored_biases,
    with_shallow_masks,
)
from relayout.quantization.ratios import real_ratios
from relayout.quantization.request import QuantizationRequest
from relayout.quantization.samples import WHITE, ModelInput, Samples

# Google's ai-edge-quantizer in a child process, which LiteRT may end.

STAGE = "calibrating"  # the stage of a conversion in which samples are run
REALS = (None, "float32")  # types of outputs that are real numbers
SUMS = {"ADD": "AddOptions", "SUB": "SubOptions"}
"""Operators that shift integers of 16 bits instead of multiplying them where scales are powers of two."""
ONE_SCALE_FOR_ALL = ("MAXIMUM", "MINIMUM", "SELECT_V2")
"""Operators whose operands get the result's scale, by the quantizer in as many dimensions as the result has."""
INTEGERS = ("int8", "int16")  # types of outputs that are those of the integers inside of a graph


class QuantizationError(RelayoutError):
    """The quantizer refuses a model, or LiteRT does not run what it makes."""


def quantized_file(
    source: Path,  # a float `.tflite`
    result: Path,  # where the quantized one goes
    recipe: Sequence[Mapping[str, Any]],  # what becomes of each operator
    key: str,  # of the signature that samples are fed to
    samples: Iterable[Mapping[str, Any]] | None,  # inputs by name; None where the recipe needs none
    # ranges in samples -> ranges that tensors have instead, and more rows of the recipe
    decide: Callable[[Mapping[str, Range]], tuple[Mapping[str, Range], Sequence[Mapping[str, Any]]]],
) -> tuple[dict[str, Range], int]:
    """Quantize a file.

    Returns:
        The range of each value, and how many samples there were.

    Raises:
        QuantizationError: it cannot be quantized, or LiteRT does not run it.
    """
    script = Path(__file__).with_name("quantizer_server.py")
    child = Process.serving(script, {"TQDM_DISABLE": "1"})
    count = 0
    try:
        _ask(
            child, "the quantizer reads the float file", "begin", str(source), list(recipe), key, samples is not None, 1
        )
        total = len(samples) if isinstance(samples, Sized) else 0
        for sample in () if samples is None else samples:
            say(STAGE, count, max(total, count + 1))
            _ask(child, f"sample {count} runs", "sample", dict(sample))
            count += 1
        say(STAGE, count, max(total, count))
        ranges: dict[str, Range] = _ask(child, "ranges are asked for", "ranges")
        limits, rows = decide(ranges)
        _ask(child, "the file is quantized", "finish", str(result), dict(limits), list(rows))
        return ranges, count
    finally:
        child.close()


NO_SUCH_SCALES = (
    ": a kernel has no integers for the scales of some value, such as one that is almost 0 in all samples; --keep-float"
    " NAME leaves its operator in float"
)


def _ask(child: Process, what: str, *question: Any) -> Any:
    """Return the answer of the child process.

    Raises:
        QuantizationError: it raises an error, or ends.
    """
    try:
        said, answer = child.answer(*question)
    except DiedError as death:
        cure = "" if question[0] != "finish" else NO_SUCH_SCALES
        raise QuantizationError(f"LiteRT ends its process while {what} ({death.how}){cure}") from None
    if said:
        raise QuantizationError(f"while {what}: {said}")
    return answer


# Recipes of ai-edge-quantizer, which say what becomes of each operator: JSON types.
#
# Of the rows that match an operator the last one counts. A row names operators by a regular expression of the tensors
# that they give.

ALL = "*"
BY_CHANNEL, BY_TENSOR = "CHANNELWISE", "TENSORWISE"
HALVED = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D_TRANSPOSE", "EMBEDDING_LOOKUP")
"""Operators whose weights may be halves, by the quantizer's names."""
ONE_SCALE = ("BATCH_MATMUL",)
"""Operators whose kernels on integers know one scale of constants alone: with one for each channel they compute 0."""
ENDS = {"INPUT": "input_type", "OUTPUT": "output_type"}  # the quantizer's name of an end -> the field of a request

Row = dict[str, Any]


def recipe(request: QuantizationRequest) -> list[Row]:
    """Return the rows of a request."""
    if request.kind == "float16":
        halves = _tensor(16, "FLOAT", is_symmetric=True, granularity=BY_CHANNEL)
        rows = [_row(name, halves, "FLOAT", algorithm="float_casting") for name in HALVED]
    else:
        activations = {"int8": _tensor(8, "INT"), "int16x8": _tensor(16, "INT", is_symmetric=True)}.get(request.kind)
        rows = [_row(ALL, WEIGHTS, "INTEGER", activations)]
        rows += [_row(name, {**WEIGHTS, "granularity": BY_TENSOR}, "INTEGER", activations) for name in ONE_SCALE]
        rows += [] if activations is None else _ends(request)
    return rows


def _float_rows(file: Model, tensors: Mapping[str, str]) -> list[Row]:
    """Return the rows of operators that stay float, by the tensors that they give."""
    scopes = [
        "".join(f"{each};" for each in names)
        for names in _names_of_results(file)
        if not tensors.keys().isdisjoint(names)
    ]
    return [{"regex": f"^{re.escape(scope)}$", **_FLOAT} for scope in scopes]


def _names_of_results(file: Model) -> list[list[str]]:
    """Return the names of the tensors that each operator gives, where it gives any."""
    rows = [(graph, row) for graph in file.subgraphs for row in graph.operators if row.outputs]
    return [[graph.tensors[each].name for each in row.outputs] for graph, row in rows]


_FLOAT: Row = {"operation": ALL, "algorithm_key": "no_quantize", "op_config": {"compute_precision": "FLOAT"}}


def _ends(request: QuantizationRequest) -> Iterable[Row]:
    """Yield a row for inputs and one for outputs, where they are not the integers of the graph."""
    for name, field in ENDS.items():
        kind = getattr(request, field)
        if kind in (None, "float32"):
            yield {"regex": ".*", **_FLOAT, "operation": name}
        elif kind == "uint8":
            yield _row(name, WEIGHTS, "INTEGER", _tensor(8, "UINT"))


def _tensor(bits: int, dtype: str, *, is_symmetric: bool = False, granularity: str = BY_TENSOR) -> Row:
    return {"num_bits": bits, "symmetric": is_symmetric, "granularity": granularity, "dtype": dtype}


WEIGHTS = _tensor(8, "INT", is_symmetric=True, granularity=BY_CHANNEL)


def _row(
    operation: str,
    weights: Row,
    precision: str,
    activations: Row | None = None,
    algorithm: str = "min_max_uniform_quantize",
) -> Row:
    config = {
        **({} if activations is None else {"activation_tensor_config": activations}),
        "weight_tensor_config": weights,
        "compute_precision": precision,
        "explicit_dequantize": precision == "FLOAT",
        "skip_checks": False,
        "min_weight_elements": 0,
    }
    return {"regex": ".*", "operation": operation, "algorithm_key": algorithm, "op_config": config}


KEPT = "--keep-float"
MASKING = "integers of one scale hold no scores beside a mask"


def quantize_file(
    file: Model,  # a float `.tflite`
    request: QuantizationRequest,  # what is asked for
    inputs: Sequence[ModelInput],  # what samples have
    operators: Mapping[str, str],  # name of an operator of the source -> the value that it gives
    *,
    for_litert: bool,  # True if LiteRT's CPU kernels run it, which may stay float where they take less time
    finish: Callable[[Model], Model],  # returns the quantized file as its runtime takes it
) -> tuple[Model, findings.QuantizationSummary]:
    """Return a file quantized, and what became of it.

    Raises:
        LayoutError: the file has integers already.
        SampleError: the samples are not what the model is fed.
        QuantizationError: the quantizer or LiteRT refuses the file.
    """
    refuse_quantized(file, request.kind)
    if request.is_calibrated:
        _refuse_unseen(file, request.kind)
    file = _with_unique_names(file)
    samples = Samples(request.samples, inputs) if request.is_calibrated else None
    reasons = _reasons(file, request, operators, for_litert=for_litert)
    if request.is_calibrated:
        file, reasons = _with_own_outputs(file, reasons, request.output_type)
        file = file._replace(subgraphs=tuple(map(_with_whole_ranks, file.subgraphs)))
    if request.kind == "int16x8":
        file = file._replace(subgraphs=tuple(map(_with_free_scales, file.subgraphs)))
    pixels = {
        each.tensor: (0.0, float(WHITE))
        for each in inputs
        if each.normalization is not None and request.input_type == "uint8"
    }
    joins_matter = request.kind == "int8"  # 16 bits have steps for both
    with tempfile.TemporaryDirectory(prefix="relayout-quantize-") as directory:
        source, result = Path(directory) / "float.tflite", Path(directory) / "quantized.tflite"
        save(with_ignored_biases(file) if request.is_calibrated else file, source)
        shallow = file

        def decide(ranges: Mapping[str, Range]) -> tuple[dict[str, Range], list[Row]]:
            nonlocal shallow
            if not request.is_calibrated:
                return {}, []
            shallow, masked = with_shallow_masks(file, reasons, ranges, request.kind)
            save(shallow, source)
            reals = real_ratios(file, request.kind, ranges, for_litert=for_litert)
            reals |= findings.real_joins(file, ranges) if joins_matter and request.output_type in REALS else {}
            reals = {name: why for name, why in reals.items() if name not in reasons}
            reasons.update(reals)
            return pixels | masked, _float_rows(file, reals)

        key = file.signatures[0].key
        rows = [*recipe(request), *_float_rows(file, reasons)]
        ranges, count = quantized_file(source, result, rows, key, samples, decide)
        written = load(result.read_bytes())
        graphs = tuple(map(_without_copies, written.subgraphs))
        quantized = _with_names_of_ends(written._replace(files=file.files, subgraphs=graphs), file)
        if request.is_calibrated:
            quantized = with_room_for_biases(quantized, shallow)
        quantized = finish(quantized)
    joined = findings.joined_outputs(file, ranges) if joins_matter and request.output_type not in REALS else ()
    return finished(quantized), findings.summary_of(request.kind, count, quantized, reasons, joined)


def _reasons(
    file: Model, request: QuantizationRequest, operators: Mapping[str, str], *, for_litert: bool
) -> dict[str, str]:
    """Return why operators stay real: tensor that they give -> the reason."""
    reasons = dict.fromkeys(_named(file, request.keep_float, operators), KEPT)
    if request.kind in ("dynamic", "int16x8"):
        reasons = findings.products_by_weights_first(file) | reasons
    if not request.is_calibrated:
        return reasons
    slow = findings.slow_on_integers(file, for_litert=for_litert, with_ends=request.output_type in REALS)
    reasons = findings.computed_divisors(file) | tests_for_infinity(file) | reasons
    faster = slow | (findings.normalizations(file) if for_litert else {})
    faster |= dict.fromkeys(sums_with_masks(file, faster.keys() | reasons.keys()), MASKING)
    faster |= findings.parted_functions(file, frozenset(operators.values()), reasons | faster, for_litert=for_litert)
    both = faster | reasons
    is_all = for_litert and not any(both.keys().isdisjoint(names) for names in _names_of_results(file))
    return reasons if is_all else both


def _with_unique_names(file: Model) -> Model:
    """Return a model in which no two tensors have one name: the quantizer takes them for the same, of any subgraph."""
    names = Names(set())

    def named(graph: Subgraph) -> Subgraph:
        new = [names.unique(tensor.name) for tensor in graph.tensors]
        pairs = zip(graph.tensors, new, strict=True)
        return graph._replace(tensors=tuple(t if name == t.name else replace(t, name=name) for t, name in pairs))

    return file._replace(subgraphs=tuple(map(named, file.subgraphs)))


def _with_free_scales(graph: Subgraph) -> Subgraph:
    """Return a graph whose sums may have any scales: by default kernels of 16 bits abort over some powers of two."""

    def freed(row: Operator) -> Operator:
        fields = {**({} if row.options is None else row.options.fields), "pot_scale_int16": False}
        return row._replace(options=options(SUMS[row.name], **fields)) if row.name in SUMS else row

    return graph._replace(operators=tuple(map(freed, graph.operators)))


def _with_whole_ranks(graph: Subgraph) -> Subgraph:
    """Return a graph whose constants have the rank of the result with which they share a scale, or none."""
    changes = dict[tuple[int, int], Tensor]()
    for number, row in enumerate(graph.operators):
        for slot, place in enumerate(row.inputs if row.name in ONE_SCALE_FOR_ALL else ()):
            rank, own = len(graph.tensors[row.outputs[0]].shape), graph.tensors[place]
            if own.data is not None and own.type == TensorType.FLOAT32 and 0 < len(own.shape) < rank:
                shape = (*[1] * (rank - len(own.shape)), *own.shape)
                changes[number, slot] = replace(own, shape=shape, signature=shape)
    return findings.with_constants(graph, changes)


def _with_own_outputs(
    file: Model,  # a float file
    reasons: Mapping[str, str],  # tensor -> why the operator that gives it stays real
    output_type: str | None,  # the type of the ends; None: real numbers
) -> tuple[Model, dict[str, str]]:
    """Return a file with outputs that are copies, and the reasons by the names that tensors have there."""
    graph, *bodies = file.subgraphs
    # The quantizer gives all readers of a tensor the type of the end. So copies are outputs that operators read, where
    # an end has another type than the integers inside, and those of operators that stay real where an end is integers.
    shared = {each for row in graph.operators for each in row.inputs} if output_type not in INTEGERS else set[int]()
    if output_type not in REALS:
        shared |= {each for each in graph.outputs if graph.tensors[each].name in reasons}
    copied = [each for each in dict.fromkeys(graph.outputs) if each in shared and _is_computed_and_static(graph, each)]
    graph, sources = _with_copies(graph, copied)
    renamed_reasons = {name: why for name, why in reasons.items() if output_type in REALS or name not in sources}
    renamed_reasons |= {source: reasons[name] for name, source in sources.items() if name in reasons}
    return file._replace(subgraphs=(graph, *bodies)), renamed_reasons


def _with_copies(graph: Subgraph, outputs: Sequence[int]) -> tuple[Subgraph, dict[str, str]]:
    """Return a graph with outputs that are RESHAPEs, and the name of each and of the tensor that it copies."""
    tensors, copies, names = list(graph.tensors), list[Operator](), Names({t.name for t in graph.tensors})
    inner: dict[int, int] = {}
    for output in outputs:
        tensor, place = graph.tensors[output], len(tensors)
        inner[output] = place
        data = array_content(np.array(tensor.shape, np.int32))
        shape = (len(tensor.shape),)
        tensors += [
            replace(tensor, index=place, name=names.unique(f"{tensor.name}/read")),
            Tensor(place + 1, names.unique(f"{tensor.name}/shape"), TensorType.INT32, shape, shape, data),
        ]
        copies.append(Operator("RESHAPE", 1, (place, place + 1), (output,), options=options("ReshapeOptions")))
    rows = [
        row._replace(
            inputs=tuple(inner.get(each, each) for each in row.inputs),
            outputs=tuple(inner.get(each, each) for each in row.outputs),
        )
        for row in graph.operators
    ]
    renamed = {graph.tensors[output].name: tensors[place].name for output, place in inner.items()}
    return graph._replace(tensors=tuple(tensors), operators=(*rows, *copies)), renamed


def _is_computed_and_static(graph: Subgraph, index: int) -> bool:
    tensor = graph.tensors[index]
    is_static = tensor.signature == tensor.shape and bool(tensor.shape)
    return is_static and tensor.data is None and index not in graph.inputs and tensor.type == TensorType.FLOAT32


def _without_copies(graph: Subgraph) -> Subgraph:
    """Return a graph that copies no integers and tests none for NaN: what an output is a copy of is the output."""
    producers = {each: row for row in graph.operators for each in row.outputs}
    operands = [(row, _copied(graph, row, producers)) for row in graph.operators]
    copies = {row.outputs[0]: place for row, place in operands if place is not None}
    same = {result: place for result, place in copies.items() if result not in graph.outputs}
    computed = producers.keys() - same.keys() - {*graph.outputs}
    ends = {place: result for result, place in copies.items() if result not in same and place in computed}
    superfluous = {*same, *ends.values()}

    def renamed(tensor: int) -> int:
        while tensor in same:
            tensor = same[tensor]
        return ends.get(tensor, tensor)

    rows = [
        row._replace(inputs=tuple(map(renamed, row.inputs)), outputs=tuple(map(renamed, row.outputs)))
        for row in graph.operators
        if superfluous.isdisjoint(row.outputs)
    ]
    read = {*graph.outputs, *(each for row in rows for each in row.inputs)}
    return graph._replace(operators=tuple(row for row in rows if row.name != "NOT_EQUAL" or row.outputs[0] in read))


def _copied(graph: Subgraph, row: Operator, producers: Mapping[int, Operator]) -> int | None:
    """Return the operand of which a RESHAPE, or a choice `SELECT_V2(NOT_EQUAL(x, x), c, y)`, always is a copy."""
    place = row.inputs[0] if row.name == "RESHAPE" else None
    test = producers.get(row.inputs[0]) if row.name == "SELECT_V2" else None
    if test is not None and test.name == "NOT_EQUAL" and test.inputs[0] == test.inputs[1]:
        place = row.inputs[2] if graph.tensors[test.inputs[0]].type in findings.BYTES else None
    if place is None:
        return None
    operand, result = graph.tensors[place], graph.tensors[row.outputs[0]]
    meaning = result.quantization
    is_same = operand.shape == result.shape and meaning is not None and meaning.equals(operand.quantization)
    # XNNPACK writes no output that dequantizes a constant.
    return place if is_same and operand.data is None else None


def _with_names_of_ends(quantized: Model, file: Model) -> Model:
    """Return a model whose inputs and outputs have the names of the float file's: its metadata speaks of them.

    The quantizer gives the name to the integers beside an end, and the end another one: both change places.
    """
    graphs = []
    for graph, before in zip(quantized.subgraphs, file.subgraphs, strict=True):
        places = {tensor.name: tensor.index for tensor in graph.tensors}
        names: dict[int, str] = {}
        for own, old in zip((*graph.inputs, *graph.outputs), (*before.inputs, *before.outputs), strict=True):
            name, float_name = graph.tensors[own].name, before.tensors[old].name
            if name != float_name and own not in names:
                names |= {places[float_name]: name} if float_name in places else {}
                names[own] = float_name
        tensors = tuple(
            replace(tensor, name=names[tensor.index]) if tensor.index in names else tensor for tensor in graph.tensors
        )
        graphs.append(graph._replace(tensors=tensors))
    return quantized._replace(subgraphs=tuple(graphs))


def refuse_quantized(file: Model, kind: str) -> None:
    """Refuse a file that has integers with a scale.

    Raises:
        LayoutError: it has.
    """
    count = sum(findings.is_quantized(graph, row.outputs) for graph in file.subgraphs for row in graph.operators)
    if count:
        raise LayoutError(
            f"--quantize {kind}: the source is quantized already ({count} operators on integers): leave --quantize out,"
            " or read a .tflite with --quant float first"
        )


UNSEEN = ("IF", "UNIDIRECTIONAL_SEQUENCE_LSTM", "WHILE")  # operators with values inside of which samples show no ranges


def _refuse_unseen(file: Model, kind: str) -> None:
    """Refuse a file with values that the quantizer sees in no run.

    Raises:
        QuantizationError: there are some.
    """
    (graph, *_) = file.subgraphs
    hiding = [row for row in graph.operators if row.name in UNSEEN]
    if hiding:
        first = graph.tensors[[*hiding[0].outputs, *hiding[0].inputs][0]].name  # an IF may have no results
        counts = ", ".join(f"{name} ×{count}" for name, count in sorted(Counter(row.name for row in hiding).items()))
        raise QuantizationError(
            f"--quantize {kind}: samples show no ranges inside of {counts} (first: {first}); --quantize dynamic needs"
            " none, and a sequence whose length --dim gives is written step by step"
        )


def _named(file: Model, names: Sequence[str], operators: Mapping[str, str]) -> list[str]:
    """Return the tensors that operators give which the user names.

    Raises:
        NamesError: a name is none of the file's.
    """
    results = _names_of_results(file)
    chosen: dict[str, None] = {}
    for name in names:
        pattern = operators.get(name, name)
        matches = [each for row in results if any(_stands_for(own, pattern) for own in row) for each in row]
        if not matches:
            known = [*operators, *(each for row in results for each in row)]
            raise NamesError(f"{KEPT} {name}: there is no operator or value of that name{nearest_values(name, known)}")
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def _stands_for(tensor: str, name: str) -> bool:
    """Return whether a tensor has a name, or is a part of the operator that gives the value of that name."""
    is_part = re.match(f"{re.escape(name)}({findings.PARTS})", tensor) is not None
    return is_part or tensor == name or fnmatchcase(tensor, name)


# Steps of a kernel's integers in which its bias fits.
#
# An integer kernel adds its bias in steps of `scale(x) · scale(w)`. Where all weights of an output are 0, or almost,
# the quantizer's step is so small that no integer holds the bias: the output would be as if there was none.


PLACES: Mapping[str, tuple[int, int, int]] = {  # operator -> the places of its image, kernel and bias
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), (0, 1, 2)),
    "TRANSPOSE_CONV": (2, 1, 3),
}
MOST: Mapping[TensorType, int] = {TensorType.INT32: 1 << 30, TensorType.INT64: 1 << 40}
"""Type of a bias -> the most steps that it may have: LiteRT rescales no more."""
CLIPPED = (1 << 31) - 1  # steps from which on the quantizer clips a bias


def with_room_for_biases(
    quantized: Model,  # the quantized file
    file: Model,  # the float one, whose tensors have the same names
) -> Model:
    """Return a quantized file in which each bias fits; the scales of kernels are larger where they have to be."""
    biases: dict[str, NDArray[np.float32]] = {}  # name of a kernel -> the bias beside it
    for graph in file.subgraphs:
        for row in graph.operators:
            for _, kernel, bias in _places(row):
                if (numbers := findings.numbers_of(graph, row.inputs[bias])) is not None:
                    biases[graph.tensors[row.inputs[kernel]].name] = numbers.reshape(-1)
    return quantized._replace(subgraphs=tuple(_with_room(graph, biases) for graph in quantized.subgraphs))


def _places(row: Operator) -> list[tuple[int, int, int]]:
    """Return the places of an operator's image, kernel and bias; nothing where it has none."""
    places = PLACES.get(row.name)
    return [places] if places and row.inputs[places[2] : places[2] + 1] not in ((), (-1,)) else []


def _with_room(graph: Subgraph, biases: Mapping[str, NDArray[np.float32]]) -> Subgraph:
    """Return a graph in which each bias fits."""
    changes = dict[tuple[int, int], Tensor]()
    readers = Counter(each for row in graph.operators for each in row.inputs)
    for number, row in enumerate(graph.operators):
        for places in _places(row):
            image, kernel, bias = (graph.tensors[row.inputs[place]] for place in places)
            if kernel.name in biases and readers[kernel.index] == 1:
                pair = zip(places[1:], _with_steps(image, kernel, bias, biases[kernel.name]), strict=True)
                changes |= {(number, place): own for place, own in pair if own is not graph.tensors[row.inputs[place]]}
    return findings.with_constants(graph, changes)


def _with_steps(image: Tensor, kernel: Tensor, bias: Tensor, reals: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
    """Return a kernel and its bias with steps that are large enough."""
    own, most = kernel.quantization, MOST.get(bias.type)
    if own is None or most is None or image.quantization is None or bias.quantization is None:
        return kernel, bias
    if kernel.type != TensorType.INT8 or own.scale.size != reals.size or own.zero_point.any():
        return kernel, bias
    steps = image.quantization.scale.astype(np.float64) * own.scale
    larger = np.maximum(steps, np.abs(reals.astype(np.float64)) / most)
    sums = np.rint(reals / larger).astype(np.int32 if bias.type == TensorType.INT32 else np.int64)
    if np.array_equal(steps, larger):  # of 64 bits the quantizer uses 32
        return kernel, bias if np.abs(sums).max() < CLIPPED else replace(bias, data=array_content(sums))
    shape = [-1 if axis == own.axis else 1 for axis in range(len(kernel.shape))]
    integers = kernel.content.view(np.int8).reshape(kernel.shape)
    fewer = np.rint(integers * (steps / larger).reshape(shape)).astype(np.int8)
    scale = (own.scale * (larger / steps)).astype(np.float32)
    meaning = bias.quantization._replace(scale=larger.astype(np.float32))
    return (
        replace(kernel, data=array_content(fewer), quantization=own._replace(scale=scale)),
        replace(bias, data=array_content(sums), quantization=meaning),
    )
