"""A .tflite in LiteRT, whose default interpreter (with XNNPACK) is what its model means."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from relayout.errors import RelayoutError, in_file
from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.container.writer import to_bytes
from relayout.formats.tflite.importing import importer
from relayout.formats.tflite.importing.importer import signature_of
from relayout.formats.tflite.provenance import Holding
from relayout.verification import litert_runtime
from relayout.verification.compare import SPACING
from relayout.verification.feeds import SAMPLE_RATE
from relayout.verification.side import (
    Array,
    BatchBlocks,
    Feeds,
    ModelValue,
    OnDemandRunner,
    Precision,
    RunError,
    Runner,
    Source,
    precision_of_types,
)
from relayout.verification.stated_numbers import initial_state

# A `.tflite` some of whose inner tensors are given: the part of it that makes others, as a file of its own.
#
# What is given is an input there. A tensor that is given and made, too, is made under its name, and read from the
# input.


class Cut(NamedTuple):
    """A part of a file."""

    model: Model  # the part
    tensors: Mapping[int, int]  # tensor of the file -> the part's that holds what is made, or what the file is fed
    entries: Mapping[int, int]  # tensor of the file that is given -> the part's input


def cut(
    model: Model,  # the file
    shown: Sequence[int],  # the tensors that it makes
    entry_indices: Collection[int],  # tensors that operators read from inputs; those that none reads are left out
) -> Cut:
    """Return the part of a file's first subgraph that makes some tensors of those that are given, and of its inputs."""
    whole = model.subgraphs[0]
    operators = _needed(whole, shown, entry_indices)
    read = dict.fromkeys(index for operator in operators for index in operator.inputs)
    fed = [index for index in read if index in entry_indices and index not in whole.inputs]
    # What is given gets a tensor of its own, behind those of the file.
    own_tensors = dict(zip(fed, count(len(whole.tensors))))
    part, places = _compacted(
        whole._replace(
            tensors=(*whole.tensors, *(replace(whole.tensors[i], name=f"{whole.tensors[i].name}/given") for i in fed)),
            inputs=(*(index for index in whole.inputs if index in read or index in shown), *own_tensors.values()),
            outputs=tuple(dict.fromkeys(shown)),
            operators=tuple(o._replace(inputs=tuple(own_tensors.get(i, i) for i in o.inputs)) for o in operators),
        )
    )
    entries = {index: places[own] for index, own in own_tensors.items()}
    return Cut(Model(model.description, (part, *model.subgraphs[1:]), ()), places, entries)


def _compacted(graph: Subgraph) -> tuple[Subgraph, dict[int, int]]:
    """Return a subgraph without the tensors that nothing in it names, and the places of all others."""
    operands = chain.from_iterable((*each.inputs, *each.outputs, *each.intermediates) for each in graph.operators)
    used = dict.fromkeys(index for index in (*graph.inputs, *operands, *graph.outputs) if index >= 0)
    scales = [blocks.scales for index in used if (blocks := graph.tensors[index].blocks) is not None]
    places = {index: place for place, index in enumerate(dict.fromkeys((*used, *scales)))}
    compacted = graph._replace(
        tensors=tuple(_moved(graph.tensors[index], place, places) for index, place in places.items()),
        inputs=tuple(places[index] for index in graph.inputs),
        outputs=tuple(places[index] for index in graph.outputs),
        operators=tuple(_renumbered(operator, places) for operator in graph.operators),
    )
    return compacted, places


def _needed(graph: Subgraph, shown: Sequence[int], entry_indices: Collection[int]) -> list[Operator]:
    """Return the operators that make what is shown of what is given, in the file's order."""
    producers = {index: place for place, operator in enumerate(graph.operators) for index in operator.outputs}
    needed_places: set[int] = set()
    ahead = list(shown)
    while ahead:
        place = producers.get(ahead.pop())
        if place is not None and place not in needed_places:
            needed_places.add(place)
            ahead += [index for index in graph.operators[place].inputs if index >= 0 and index not in entry_indices]
    return [graph.operators[place] for place in sorted(needed_places)]


def _moved(tensor: Tensor, place: int, places: Mapping[int, int]) -> Tensor:
    blocks = None if tensor.blocks is None else tensor.blocks._replace(scales=places[tensor.blocks.scales])
    return replace(tensor, index=place, blocks=blocks)


def _renumbered(operator: Operator, places: Mapping[int, int]) -> Operator:
    roles = (operator.inputs, operator.outputs, operator.intermediates)
    inputs, outputs, intermediates = (tuple(places.get(index, index) for index in role) for role in roles)
    return operator._replace(inputs=inputs, outputs=outputs, intermediates=intermediates)


MOST = 1 << 28  # bytes of tensors that an interpreter keeps at most
COUNTING_OPERAND = {"GATHER": 1, "GATHER_ND": 1, "EMBEDDING_LOOKUP": 0}
"""Operators with an operand of indices, and which; the other of the first two is what they count into."""
RATES = {"Mfcc": 1}  # operators with an operand that is a sample rate, and which
MANY_WEIGHTS = 1024  # elements of a constant from which on a quantizer would have stored it as integers
TO_BATCHES = "SPACE_TO_BATCH_ND"
PASSING = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "PAD")
"""Operators that keep all elements in their order, and add none but 0: as an operand is rounded, so is theirs."""


class LiteRTSide(litert_runtime.LiteRTFile):
    """The first subgraph of a .tflite model."""

    def __init__(self, source: Source, label: str = "") -> None:
        super().__init__(source, label)
        self._fed: dict[str, tuple[int | None, ...]] = {}
        interpreter = self.sized()
        self._details: dict[int, dict[str, Any]] = {d["index"]: d for d in interpreter.get_tensor_details()}
        self._operators = [o for o in interpreter._get_ops_details() if o["op_name"] != "DELEGATE"]
        self._aliases = self._signature_names(interpreter)
        self._titles = Counter(chain.from_iterable(self._aliases.values()))
        self._counts = Counter(d["name"] for d in self._details.values())
        self._producers = {
            int(t): (order, o) for order, o in enumerate(self._operators) for t in o["outputs"] if t >= 0
        }
        """Tensor -> place of its operator, and that."""
        outputs = [int(d["index"]) for d in interpreter.get_output_details()]
        self.indices: dict[str, int] = {}
        self._inputs = [int(d["index"]) for d in interpreter.get_input_details()]
        self.initial: Feeds = {}
        self.inputs = [self._value(index) for index in self._inputs]
        self.initial = dict(self._initial_states())
        self.outputs = [self._value(index) for index in outputs]
        hidden = {*outputs, *self._folded()}
        hidden |= {index for index, details in self._details.items() if details["dtype"] is np.object_}  # lists
        shown = [index for index in self._producers if index not in hidden and index in self._details]
        self.interiors = [self._value(index) for index in shown]
        self.levels = self._levels(interpreter)
        self.rounds = self.levels > 0 or self._quantized

    def _initial_states(self) -> Iterator[tuple[str, Array]]:
        """Inputs that are state from run to run, as the file declares, with what they begin with."""
        for value in self.inputs:
            tensor = str(self._details[self.indices[value.name]]["name"])
            if tensor in self.provenance.initial and value.dtype is not None and value.fallback is not None:
                text, names = self.provenance.initial[tensor], value.all_names
                array = initial_state(text, value.dtype, value.fallback, value.source_values, names)
                if array is not None:
                    yield value.name, array

    @cached_property
    def rounded(self) -> dict[str, tuple[int | BatchBlocks, ...]]:
        """Operands of hybrid operators, and what they are reshaped from or put around; a row is the last axis.

        What a recurrent operator yields is its operand in the next step. Of an image that is divided between batches
        each batch is a row, too.
        """
        names = {index: name for name, index in self.indices.items()}
        rows_by_name: dict[str, dict[int | BatchBlocks, None]] = {}
        for operator in filter(self._is_hybrid, self._operators):
            again = operator["outputs"] if operator["op_name"].endswith(("LSTM", "RNN")) else ()
            for index in map(int, (*operator["inputs"], *again)):
                shape = self._details[index]["shape"] if index in self._details else ()
                rows: dict[int | BatchBlocks, None] = dict.fromkeys(filter(None, [self._row(operator, shape)]))
                while index in names and rows and self._details[index]["dtype"] is np.float32:
                    rows_by_name.setdefault(names[index], {}).update(rows)
                    _, producer = self._producers.get(index, (-1, {"op_name": ""}))
                    if producer["op_name"] == TO_BATCHES and (blocks := self._blocks(producer)) is not None:
                        rows[blocks] = None
                    elif producer["op_name"] not in PASSING:
                        break
                    index = int(producer["inputs"][0])
        return {name: tuple(lengths) for name, lengths in rows_by_name.items()}

    def _blocks(self, operator: Mapping[str, Any]) -> BatchBlocks | None:
        """Return the blocks of a SPACE_TO_BATCH_ND; None where they are computed."""
        try:
            block = self.model.subgraphs[0].tensors[int(operator["inputs"][1])].content
        except RelayoutError:  # the reader is stricter than the runtime
            return None
        return BatchBlocks(tuple(block.view(np.int32).tolist())) if block.size else None

    @cached_property
    def _quantized(self) -> bool:
        """Tell whether a tensor holds integers with a scale, also in a body."""
        if any(map(litert_runtime.is_quantized, self._details.values())):
            return True
        try:
            bodies = self.model.subgraphs[1:]
            # Computed ones: weights alone are those of hybrid operators, which the levels tell.
            tensors = [graph.tensors[t] for graph in bodies for each in graph.operators for t in each.outputs]
        except RelayoutError:  # the reader is stricter than the runtime
            return False
        return any(tensor.quantization is not None and "INT" in tensor.type.name for tensor in tensors)

    @cached_property
    def precision(self) -> Precision:
        """Quantized where any tensor is, float16 where one is stored so."""
        if self._quantized:
            return Precision.QUANTIZED
        return precision_of_types(details["dtype"] for details in self._details.values())

    @cached_property
    def rounding(self) -> float:
        """The rounding of the narrowest floats that it computes; float16 of stored weights does not count."""
        computed = (np.dtype(self._details[t]["dtype"]).name for t in self._producers if t in self._details)
        return max((SPACING.get(name, 0.0) for name in computed), default=0.0)

    has_other_kernels = True

    @cached_property
    def in_float(self) -> dict[str, tuple[str, ...]]:
        """Operators that give floats, but for DEQUANTIZE; where no activation is quantized, those of float weights."""
        if self.precision is not Precision.QUANTIZED:
            return {}
        has_activations = any(
            index in self._producers and litert_runtime.is_quantized(d) for index, d in self._details.items()
        )
        names: dict[str, list[str]] = {}
        for operator in self._operators:
            outputs = [self._details[int(t)] for t in operator["outputs"] if int(t) in self._details]
            gives_floats = operator["op_name"] != "DEQUANTIZE" and any(d["dtype"] is np.float32 for d in outputs)
            if gives_floats and (has_activations or self._float_weights(operator) >= MANY_WEIGHTS):
                names.setdefault(operator["op_name"], []).append(str(outputs[0]["name"]))
        return {operator: tuple(each) for operator, each in names.items()}

    def _float_weights(self, operator: dict[str, Any]) -> int:
        """Return how many elements the largest float constant that an operator reads has."""
        constants = {int(t) for t in operator["inputs"] if int(t) in self._details} - {*self._producers, *self._inputs}
        floats = [self._details[t]["shape"] for t in constants if self._details[t]["dtype"] is np.float32]
        return max((math.prod(map(int, shape)) for shape in floats), default=0)

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float, float]]:
        """The numbers that the integers of an input stand for, or those of the QUANTIZE that reads it."""
        limits_by_name: dict[str, tuple[float, float, float]] = {}
        reading = {int(o["inputs"][0]): int(o["outputs"][0]) for o in self._operators if o["op_name"] == "QUANTIZE"}
        for value in self.inputs:
            index = self.indices[value.name]
            details = self._details[reading.get(index, index)]
            limits = litert_runtime.limits_of(details)
            if limits is not None:
                limits_by_name[value.name] = (*limits, float(details["quantization"][0]))
        return limits_by_name

    @property
    def requantized(self) -> float:
        """The most steps of a result in one step of its operand, where integers get another scale; 0 if none do.
        Integers that are fed have one at most: they are rounded once.
        """
        ratios = [0.0]
        for operator in (each for each in self._operators if each["op_name"] == "QUANTIZE"):
            index = int(operator["inputs"][0])
            ends = [self._details[index], self._details[int(operator["outputs"][0])]]
            if all(map(litert_runtime.is_quantized, ends)):
                before, behind = (float(each["quantization_parameters"]["scales"][0]) for each in ends)
                ratios.append(min(before / behind, math.inf if index in self._producers else 1.0))
        return max(ratios)

    @property
    def remembers(self) -> bool:
        """True if it has resources: their content is not reset between runs, as variable tensors are."""
        return any(operator["op_name"] == "VAR_HANDLE" for operator in self._operators)

    def _row(self, operator: dict[str, Any], shape: Sequence[int]) -> int:
        """Return how many elements are multiplied by one row of weights; 0 if the operand is not multiplied so."""
        if operator["op_name"] == "FULLY_CONNECTED":
            return int(self._details[int(operator["inputs"][1])]["shape"][-1])
        return int(shape[-1]) if len(shape) > 1 else 0

    def forced(
        self,
        shown: Sequence[str],
        entry_names: Sequence[str],
        nudge: float = 0,
        *,
        terms: bool = False,
        own: bool = False,
    ) -> "ForcedLiteRT | None":
        """A file of the operators that make some tensors of others; None for what only a graph can be changed to give.

        That is what integer kernels make of other numbers than they are given (`nudge`), and the rest.
        """
        if nudge or terms or own:
            return None
        return self._part(shown, entry_names)

    def _part(self, shown: Sequence[str], entry_names: Sequence[str], *, reference: bool = False) -> "ForcedLiteRT":
        """Return a file of the operators that make some tensors of others, and of the inputs."""
        part = cut(self.model, [self.indices[name] for name in shown], {self.indices[name] for name in entry_names})
        return ForcedLiteRT(self, to_bytes(part.model), part, entry_names, reference=reference)

    @cached_property
    def operands_of(self) -> Mapping[str, tuple[str, ...]]:
        """Computed tensors, in the file's order -> those that their operators read."""
        return {
            self._called(index): tuple(self._called(int(tensor)) for tensor in operator["inputs"] if tensor >= 0)
            for index, (_, operator) in self._producers.items()
        }

    def learn(self, feeds: Feeds) -> None:
        """Let an interpreter prepare what is fed, and tell all shapes."""
        if all(value.shape is not None and None not in value.shape for value in self.interiors):
            return
        interpreter = self.interpreter(litert_runtime.OPTIMIZED)
        try:
            for name, array in feeds.items():
                interpreter.resize_tensor_input(self.indices[name], array.shape)
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise RunError(self.runtime[0], self.label, error) from None
        shapes = {int(d["index"]): tuple(map(int, d["shape"])) for d in interpreter.get_tensor_details()}
        self._fed.clear()
        self._fed.update((name, shapes[index]) for name, index in self.indices.items() if index in shapes)

    def runner(
        self,
        interiors: Sequence[str] = (),
        reference: bool = False,
        moved: Mapping[str, int] | None = None,
    ) -> Runner:
        """Return an interpreter; with `interiors`, one that keeps every tensor, and delegates operators one by one.

        Where all tensors take too much memory, the part of the model runs that makes what is asked for.
        """
        preserve = bool(interiors)
        if preserve and not self.remembers and sum(value.size() for value in self.interiors) > MOST:
            return OnDemandRunner(self.indices, lambda names: self._part(names, (), reference=reference))
        return (
            litert_runtime.ReferenceRunner(self, preserve)
            if reference
            else litert_runtime.LiteRTRunner(self, litert_runtime.DEFAULT, preserve)
        )

    def _signature_names(self, interpreter: Any) -> dict[int, tuple[str, ...]]:
        """Return the names that signatures have for tensors of the first subgraph, which is the one that is run."""
        names_by_index: dict[int, tuple[str, ...]] = {}
        for key, signature in interpreter._get_full_signature_list().items():
            if interpreter._interpreter.GetSubgraphIndexFromSignature(key):
                continue
            for kind in ("inputs", "outputs"):
                for name, index in signature[kind].items():
                    names_by_index[int(index)] = (*names_by_index.get(int(index), ()), str(name))
        return names_by_index

    def _folded(self) -> set[int]:
        """Return the tensors that constants alone make, as dequantized weights: delegates fold and never write them."""
        known = set(self._details) - {*self._producers, *self._inputs}
        for operator in self._operators:
            if all(int(t) in known for t in operator["inputs"] if t >= 0):
                known.update(map(int, operator["outputs"]))
        return known

    def _value(self, index: int) -> ModelValue:
        details, dtype = self._details[index], np.dtype(self._details[index]["dtype"])
        order, operator = self._producers.get(index, (-1, {"op_name": "", "index": -1}))
        stated = litert_runtime.value_arguments(details)
        before = self._details[int(operator["inputs"][0])] if operator["op_name"] == "DEQUANTIZE" else None
        holding = self.provenance.tensors.get(str(details["name"]), Holding())
        value = ModelValue(
            name=self._called(index),
            dtype=np.dtype(np.object_) if dtype.kind == "S" else dtype,  # texts
            aliases=(*self._aliases.get(index, ()), *holding.names),
            source_values=holding.holds,
            operator=operator["op_name"],
            node=str(operator["index"]) if operator["op_name"] else "",
            order=order,
            **stated,
            bound=self._bounds.get(index),
            likely=SAMPLE_RATE if index in self._rates else None,
            normalization=self.provenance.normalization(str(details["name"]), stated["shape"]),
            step=0.0 if before is None else max(litert_runtime.scales_of(before), default=0.0),
            limits=None if before is None else litert_runtime.limits_of(before),
            operands=tuple(self._called(int(t)) for t in operator.get("inputs", ()) if int(t) in self._details),
            title=self._title(index),
            fed=self._fed,
        )
        self.indices[value.name] = index
        return value

    def _called(self, index: int) -> str:
        """Return a name that no other tensor has."""
        name = str(self._details[index]["name"]) if index in self._details else ""
        return name if self._counts[name] == 1 and name != "" else f"{name}#{index}"

    def _title(self, index: int) -> str:
        """Return the signature's name for a tensor, if no other tensor has it, nor as its own."""
        own = (name for name in self._aliases.get(index, ()) if self._titles[name] == 1 and not self._counts[name])
        return next(own, "")

    @cached_property
    def _bounds(self) -> dict[int, int]:
        """Tensors that operators count with -> how far these may."""
        bounds: dict[int, int] = {}
        for operator in self._operators:
            place = COUNTING_OPERAND.get(operator["op_name"])
            if place is not None and len(operator["inputs"]) > 1:
                index = int(operator["inputs"][place])
                most = int(min(self._details[int(operator["inputs"][1 - place])]["shape"], default=1))
                bounds[index] = min(most, bounds.get(index, most))
        return bounds

    @cached_property
    def _rates(self) -> set[int]:
        """Tensors that operators read as sample rates."""
        readers = ((operator["inputs"], RATES.get(operator["op_name"])) for operator in self._operators)
        return {int(read[place]) for read, place in readers if place is not None and len(read) > place}

    def _levels(self, interpreter: Any) -> int:
        """A hybrid operator rounds its operand to 8 bits at run time; 16-bit ones round by multipliers of 15 bits.

        The interpreter does not tell the operators of a body: there, quantized weights count as those of a hybrid one.
        """
        bodies = (d for k in range(1, interpreter.num_subgraphs()) for d in interpreter.get_tensor_details(k))
        if any(self._is_hybrid(operator) for operator in self._operators) or any(
            map(litert_runtime.is_quantized, bodies)
        ):
            return 255
        results = (self._details[index] for index in self._producers if index in self._details)
        return 65535 if any(d["dtype"] is np.int16 and litert_runtime.is_quantized(d) for d in results) else 0

    def _is_hybrid(self, operator: dict[str, Any]) -> bool:
        operands = [self._details[int(t)] for t in operator["inputs"] if int(t) in self._details]
        results = [self._details[int(t)] for t in operator["outputs"] if int(t) in self._details]
        floats = [d for d in (*operands, *results) if d["dtype"] is np.float32]
        weights = [d for d in operands if litert_runtime.is_quantized(d) and d["dtype"] is not np.int32]
        return bool(weights) and any(d in floats for d in operands) and all(d in floats for d in results)


class ForcedLiteRT:
    """A part of a `.tflite` model, some of whose tensors are given."""

    def __init__(
        self,
        whole: LiteRTSide,  # the model
        content: bytes,  # the part as a file
        cut: Cut,  # which of its tensors are which of the model's
        entry_names: Sequence[str],  # tensors of the model that may be given
        *,
        reference: bool = False,  # whether it runs with reference kernels
    ) -> None:
        self.model, self.side = content, LiteRTSide(content)
        names = {index: name for name, index in self.side.indices.items()}
        self.shown = {name: names[cut.tensors[index]] for name, index in whole.indices.items() if index in cut.tensors}
        self.entries = {
            name: names[cut.entries[index]] for name in entry_names if (index := whole.indices[name]) in cut.entries
        }
        self._inputs = {value.name for value in self.side.inputs}
        self._own = {name: inner for name, inner in self.shown.items() if inner in self._inputs}
        self._runner = self.side.runner(reference=reference)
        self.levels = self.side.levels
        self.requantized = self.side.requantized

    @property
    def sources(self) -> dict[str, str]:
        """The part's inputs, in its order -> what they are in the model."""
        named = {inner: name for name, inner in (*self._own.items(), *self.entries.items())}
        return {value.name: named[value.name] for value in self.side.inputs}

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the values of these names."""
        entries = {self._own.get(name, name): array for name, array in feeds.items()}
        fed = {name: array for name, array in entries.items() if name in self._inputs}
        arrays = self._runner.run(fed, [self.shown[name] for name in names])
        return {name: arrays[self.shown[name]] for name in names if self.shown[name] in arrays}


def side_of_part(
    source: Source,  # the model
    key: str | None,  # its signature; None: the first
    outputs: Sequence[str] = (),  # where the part ends, by the source's names; empty for all of the subgraph
) -> LiteRTSide:
    """Return the side of the subgraph of a signature, or of a part of it, as the first of a file of its own.

    Raises:
        ReadError: there is no such signature, or LiteRT does not load the part.
        NamesError: the part cannot end there.
    """
    label = litert_runtime.label_of(source)
    with in_file(label):
        model = load(source if isinstance(source, bytes) else Path(str(source)))
        chosen = signature_of(model, key)
    index, signatures = (0, ()) if chosen is None else (chosen.subgraph, (chosen._replace(subgraph=0),))
    subgraph = model.subgraphs[index]
    if outputs:
        subgraph, signatures = importer.cut(model, index, chosen, (), outputs), ()
    # Bodies are told by their number: what stood first stands last.
    first, *others = model.subgraphs
    subgraphs = tuple(_calling(each, 0, len(model.subgraphs)) for each in (subgraph, *others, first))
    return LiteRTSide(to_bytes(model._replace(subgraphs=subgraphs, signatures=signatures)), label)


def _calling(subgraph: Subgraph, old: int, new: int) -> Subgraph:
    """Return a subgraph whose operators call another one as their body."""

    def moved(options: Table | None) -> Table | None:
        if options is None:
            return None
        bodies = {name: body for name, body in options.fields.items() if "subgraph_ind" in name}
        changed = {name: np.where(np.equal(body, old), new, body).tolist() for name, body in bodies.items()}
        return Table(options.kind, 0, {**options.fields, **changed})

    operators = tuple(each._replace(options=moved(each.options)) for each in subgraph.operators)
    return subgraph._replace(operators=operators)
