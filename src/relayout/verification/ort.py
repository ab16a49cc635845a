"""An ONNX model in ONNX Runtime, on its CPU provider."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import finalize

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedNodesPass

from relayout.errors import ReadError, RelayoutError
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.reading import read
from relayout.formats.onnx.writing import write
from relayout.graph.facts import facts_of
from relayout.graph.subgraphs import all_nodes, reads
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.stored_as import CUT, OPENED_BATCH, SIGNATURE, STEPS_OFF, TENSOR, Holds, OpenedBatch, steps_off
from relayout.lowering.int8_weights_to_uint8 import KERNELS, operator_key, unsigned_kernels
from relayout.lowering.interface_types import integer_ends
from relayout.lowering.qlinear_to_qdq import qlinear_to_qdq
from relayout.partition.regions import REGIONS
from relayout.rules import draws, outputs_of
from relayout.targets import refuse_elsewhere
from relayout.verification import forced_graph, stated_numbers
from relayout.verification.compare import SPACING
from relayout.verification.feeds import SAMPLE_RATE
from relayout.verification.ort_runtime import ForcedOrt, OrtRunner, Session, make_loadable, runtime_version
from relayout.verification.runtimes import AbortedError, FailedError, prepare
from relayout.verification.side import (
    ONNX_RUNTIME,
    Feeds,
    ModelValue,
    OnDemandRunner,
    Precision,
    RunnableModel,
    Source,
    is_spelt,
    one_line,
)

# Products of uint8 by int8, which ONNX Runtime adds up in 16 bits on x64 without VNNI: there they saturate.
#
# It multiplies uint8 by uint8 in full, and stores kernels so if a session is told to. A verification does that
# itself: it judges the model, and says what a program must do for the same numbers. (Told to, ONNX Runtime up to 1.32
# reads the zero point of every kernel, there or not, and may end the process over one that is not.)

OPTION = "session.x64quantprecision"
"""ONNX Runtime's session option: with "1", kernels of int8 are stored as uint8 where products would saturate."""
BEYOND = frozenset({("com.microsoft", "QLinearConv")})  # the operators whose kernels the option leaves as they are
_ROWS = 8


@cache
def saturates(
    opened: Callable[[bytes], Any],  # makes a session of a model, as ONNX Runtime does by default
) -> bool:
    """Return whether products of uint8 by int8 saturate on this CPU."""
    from onnx import TensorProto, helper, numpy_helper

    kernel = numpy_helper.from_array(np.full((_ROWS, _ROWS), 127, np.int8), "w")
    ends = [("x", TensorProto.UINT8), ("y", TensorProto.INT32)]
    x, y = (helper.make_tensor_value_info(name, kind, [1, _ROWS]) for name, kind in ends)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "g", [x], [y], [kernel])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (products,) = opened(model.SerializeToString()).run(None, {"x": np.full((1, _ROWS), 255, np.uint8)})
    return bool((products != 255 * 127 * _ROWS).any())


def compute_in_full(
    model: ir.Model,  # the model, whose values have types
    # whether ONNX Runtime loads the file with the option: it fails over a kernel whose zero point is computed
    loads_with_option: Callable[[], bool],
) -> tuple[str, ...]:
    """Store kernels of int8 as the option would, in place, where their products saturate; what to say of it."""
    reason = "products of uint8 by int8 saturate in ONNX Runtime on this CPU, which has no VNNI"
    said = []
    if unsigned_kernels(model, leaving=BEYOND):
        same = f"for the same numbers a program must set the session option {OPTION}=1"
        if not loads_with_option():
            same = "--target onnxruntime-cpu-avx2 gives the same numbers"
        said.append(f"{reason}, and were computed in full: {same}")
    if any(map(_is_beyond, all_nodes(model.graph))):
        said.append(f"{reason}: com.microsoft:QLinearConv is wrong here; --target onnxruntime-cpu-avx2 is exact")
    return tuple(said)


def has_products(model: ir.Model) -> bool:
    """Return whether a model has operators whose products may saturate, or what is dequantized for them."""
    return any(operator_key(node) in KERNELS for node in all_nodes(model.graph))


def _is_beyond(node: ir.Node) -> bool:
    key = node.domain, node.op_type
    operands = node.inputs[KERNELS[key].kernel :] if key in BEYOND else ()
    return bool(operands) and operands[0] is not None and operands[0].dtype == ir.DataType.INT8


MOST = 1 << 28  # bytes of interior values that one session shows at most
CLAMPING = {"Relu", *forced_graph.MOVING}
_SUMS = "Add Conv ConvTranspose Einsum Gemm GlobalAveragePool MatMul ReduceMean ReduceSum Sum"
SUMMING = frozenset(_SUMS.split())
LEVELS = {"DynamicQuantizeLinear": 255}  # operator -> to how many levels it rounds real numbers, by their range
NARROW_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class OrtSide(RunnableModel):
    """An ONNX model, from anything that `formats.onnx.read` takes, or its bytes. A context: it owns temporary files.

    Args:
        source: the model.
        steps: whether a float that was dequantized may be off by a step of its integers, as in another runtime.
    """

    def __init__(self, source: Source, *, steps: bool = False) -> None:
        self.label = str(source) if isinstance(source, str | Path) else "the given model"
        self._steps = steps
        self.notes: list[str] = []
        prepare()
        self._fed: dict[str, tuple[int | None, ...]] = {}
        self._numbers = count()
        self._optimized = True
        self._directory = tempfile.TemporaryDirectory(prefix="relayout-verify-", ignore_cleanup_errors=True)
        try:
            self._path, self.model = self._read(source)
            self.loaded: str | bytes = os.path.abspath(self._path)
            refuse_elsewhere(self.model)
            # What is in the functions of a target's parts is compared and given as in one graph.
            InlinePass(lambda function: function.domain.startswith(REGIONS))(self.model)
            functions = map(all_nodes, self.model.functions.values())
            self._nodes = [*chain(all_nodes(self.model.graph), *functions)]
            """All nodes, also those in bodies and functions."""
            self._quantized = any(map(stated_numbers.quantizes, self.model.graph)) or any(
                map(stated_numbers.has_constant_scale, self._nodes)
            )
            self.rounds = self._quantized or self._has_narrow_floats
            properties = self.model.metadata_props
            self.signature, self.batch = properties.get(SIGNATURE), OpenedBatch.load(properties.get(OPENED_BATCH))
            self.steps_off, self.part = steps_off(properties.get(STEPS_OFF, "{}")), _declared_part(properties)
            if has_products(self.model) and saturates(Session):
                self._compute_in_full()
            self._collect()
        except BaseException:
            self._directory.cleanup()
            raise

    def __enter__(self) -> OrtSide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.cleanup()

    @cached_property
    def runtime(self) -> tuple[str, str]:
        """ONNX Runtime and its version."""
        return ONNX_RUNTIME, runtime_version()

    @cached_property
    def _has_narrow_floats(self) -> bool:
        """True if it has floats of 16 bits, which kernels compute with wider ones."""
        values = chain(self.model.graph.initializers.values(), *(node.outputs for node in self._nodes))
        return any(value.dtype in NARROW_FLOATS for value in values)

    @cached_property
    def precision(self) -> Precision:
        """Quantized where a node quantizes or has weights of integers; float16 where a value is stored so."""
        if self._quantized or any(map(_multiplies_integers, self.model.graph)):
            return Precision.QUANTIZED
        return Precision.FLOAT16 if self._has_narrow_floats else Precision.FLOAT32

    @cached_property
    def rounding(self) -> float:
        """The rounding of the narrowest floats that nodes compute."""
        types = {value.dtype for node in self._nodes for value in node.outputs if value.dtype in NARROW_FLOATS}
        return max((SPACING[dtype.numpy().name] for dtype in types if dtype is not None), default=0.0)

    @cached_property
    def in_float(self) -> dict[str, tuple[str, ...]]:
        """Nodes that give floats which are not quantized at once, but for DequantizeLinear."""
        return stated_numbers.nodes_in_float(self.model.graph) if self.precision is Precision.QUANTIZED else {}

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float, float]]:
        """The numbers that the integers of an input stand for, or those of the QuantizeLinear that reads it."""
        return stated_numbers.ranges_of_inputs(self.model.graph, self._integer_ends)

    @cached_property
    def drawn(self) -> frozenset[str]:
        """The results of operators that draw random numbers without a seed."""
        drawing = (node for node in self.model.graph if draws(node) and "seed" not in node.attributes)
        return frozenset(value.name or "" for node in drawing for value in node.outputs)

    @cached_property
    def implied(self) -> dict[str, tuple[int | None, ...]]:
        """Inputs with open extents -> those that weights imply."""
        return stated_numbers.implied_extents(self.model)

    def relax(self) -> bool:
        """Run without ONNX Runtime's optimizations from now on."""
        before, self._optimized = self._optimized, False
        return before

    def learn(self, feeds: Feeds) -> None:
        """Infer the shapes of all values from those of what is fed."""
        if all(value.shape is not None and None not in value.shape for value in self.interiors):
            return
        model = self.model.clone()
        input_shapes = {name: array.shape for name, array in {**self.initial, **feeds}.items()}
        for value in model.graph.inputs:
            if value.name in input_shapes:
                value.shape = ir.Shape(input_shapes[value.name])
        for value in chain.from_iterable(node.outputs for node in model.graph):
            if value.shape is not None and not value.shape.is_static():
                value.shape = None
        complete(model, outputs_of)
        computed_values = chain.from_iterable(node.outputs for node in model.graph)
        shapes = {value.name: tuple(value.shape) for value in computed_values if value.name and value.shape is not None}
        self._fed.clear()
        self._fed.update(
            (name, tuple(extent if isinstance(extent, int) else None for extent in shape))
            for name, shape in shapes.items()
        )

    def runner(
        self,
        interiors: Sequence[str] = (),
        reference: bool = False,
        moved: Mapping[str, int] | None = None,
    ) -> OrtRunner | OnDemandRunner:
        """A session; with `interiors`, of a copy of the model with more outputs; as a reference, without fusions."""
        known = {value.name: value for value in self.interiors}
        if sum(known[name].size() for name in interiors if name in known) > MOST:
            return OnDemandRunner(interiors, lambda names: self._runner(names, reference, moved or {}))
        return self._runner(interiors, reference, moved or {})

    def _runner(self, interiors: Sequence[str], reference: bool, moved: Mapping[str, int]) -> OrtRunner:
        if not interiors and not moved:
            return OrtRunner(self.label, self._session(self._path, reference), self.initial)
        copy = self._with_outputs(interiors, moved)
        return OrtRunner(self.label, self._session_of(copy, reference), self.initial)

    def _with_outputs(self, names: Sequence[str], moved: Mapping[str, int]) -> ir.Model:
        model = self.model.clone()
        if moved:
            qlinear_to_qdq(model)  # what an operator on integers rounds cannot be moved
            forced_graph.move_at_random(model.graph, moved)
        shown_names = set(names)
        model.graph.outputs.extend(v for node in model.graph for v in node.outputs if v.name in shown_names)
        return model

    def _session_of(self, model: ir.Model, reference: bool = False) -> Session:
        """Return a session of a changed copy of the model; its file is there as long as the session."""
        path = Path(self._directory.name) / f"copy{next(self._numbers)}.onnx"
        write(model, path)
        session = self._session(path, reference)
        finalize(session, _remove, path)
        return session

    def _session(self, path: Path, reference: bool = False) -> Session:
        """Return a session as ONNX Runtime makes it by default; without its optimizations, if it fails over these."""
        try:
            return Session(path, optimized=self._optimized and not reference)
        except AbortedError as error:
            raise RelayoutError(f"ONNX Runtime cannot load '{self.label}': {error}") from None
        except FailedError as error:
            problem = one_line(error)
        refused = ReadError(f"ONNX Runtime cannot load the model: {problem}", where=self.label)
        if reference or not self._optimized:
            raise refused
        try:
            session = Session(path, optimized=False)
        except FailedError:
            raise refused from None
        ran = f"{Path(self.label).name} was run without ONNX Runtime's optimizations, with which it does not load"
        if not any(note.startswith(ran) for note in self.notes):
            self.notes.append(f"{ran}: {problem}")
        return session

    def forced(
        self,
        shown: Sequence[str],
        entry_names: Sequence[str],
        nudge: float = 0,
        *,
        terms: bool = False,
        own: bool = False,
    ) -> ForcedOrt | None:
        """Return a session of a copy of the model in which given values are inputs, without what nobody needs.

        With a `nudge`, what is shown is rounded from numbers that are so many steps higher. With `terms`, the operators
        that make it are given the magnitudes of their operands. With `own`, the recurrent operators that make it are
        given it, too, as what they made in the steps before; None if they cannot be.
        """
        model = self.model.clone()
        graph = model.graph
        if nudge:
            qlinear_to_qdq(model)  # what an operator on integers rounds cannot be moved
        entries = forced_graph.give_values(graph, entry_names, shown)
        if nudge:
            forced_graph.move_quantized(graph, nudge)
        if terms:
            forced_graph.take_magnitudes(graph)
        recalled = {name: forced_graph.recall(graph, name) for name in shown} if own else {}
        if None in recalled.values():
            return None
        entries.update((name, entry) for name, entry in recalled.items() if entry is not None)
        RemoveUnusedNodesPass()(model)
        needed = {name: entry for name, entry in entries.items() if entry.uses()}
        graph.inputs[:] = [value for value in graph.inputs if value.uses() or value.is_graph_output()]
        graph.inputs.extend(needed.values())
        names = {name: entry.name or "" for name, entry in needed.items()}
        levels = max((LEVELS.get(node.op_type, 0) for node in graph), default=0)
        return ForcedOrt(OrtRunner(self.label, self._session_of(model), self.initial), model, names, levels)

    @cached_property
    def operands_of(self) -> Mapping[str, tuple[str, ...]]:
        """Computed values, in the file's order -> those that their operators read."""
        operands = {node: tuple(value.name for value in reads(node) if value.name) for node in self.model.graph}
        return {value.name: operands[node] for node in operands for value in node.outputs if value.name}

    def sum_behind(self, name: str) -> str | None:
        """The name of the sum that a value is, but for clamps and for where its elements lie; None if it is none."""
        value = next((value for node in self.model.graph for value in node.outputs if value.name == name), None)
        while value is not None and (node := value.producer()) is not None and node.op_type in CLAMPING:
            value = node.inputs[0]
        node = None if value is None else value.producer()
        return value.name if value is not None and node is not None and node.op_type in SUMMING else None

    def _read(self, source: Source) -> tuple[Path, ir.Model]:
        if isinstance(source, bytes):
            path = Path(self._directory.name) / "given.onnx"
            path.write_bytes(source)
            source = path
        model = read(source)
        notes = make_loadable(model)
        self.notes += notes
        # What a file states wrongly keeps the runtime from loading it, and so do weights beside one in its own format.
        facts = facts_of(model)
        beside = facts.ort_format is not None and facts.has_external_data
        unlike = notes or beside or facts.contradicted or facts.is_raised
        if isinstance(source, str | Path) and is_spelt(source) and not unlike:
            return Path(source), model
        path = Path(self._directory.name) / "model.onnx"
        write(model, path)
        return path, model

    def _compute_in_full(self) -> None:
        """Store the kernels so that no product saturates; which operand is uint8 is inferred, where no type says it."""
        self._complete_types([value for node in self.model.graph for value in node.outputs])
        if said := compute_in_full(self.model, self._loads_with_option):
            self.notes += said
            self._path = Path(self._directory.name) / "full.onnx"
            write(self.model, self._path)

    def _loads_with_option(self) -> bool:
        try:
            Session(self._path, entries={OPTION: "1"})
        except FailedError:
            return False
        return True

    def _collect(self) -> None:
        graph = self.model.graph
        bounds = stated_numbers.index_bounds(graph)
        outputs = {id(value) for value in graph.outputs}
        orders = {id(value): order for order, node in enumerate(graph) for value in node.outputs}
        computed_values = [
            value for node in graph for value in node.outputs if (value.name and value.uses()) or id(value) in outputs
        ]
        known = self._complete_types(computed_values)
        self._written, self._places = stated_numbers.written_places(graph), stated_numbers.named_places(graph, known)
        values = {
            id(value): self._value(value, orders, bounds, known)
            for value in (*graph.inputs, *graph.outputs, *computed_values)
        }
        weights = set(graph.initializers)
        rates = stated_numbers.sample_rates(graph)
        self.inputs = [
            replace(values[id(value)], likely=SAMPLE_RATE if value.name in rates else None)
            for value in graph.inputs
            if value.name not in weights
        ]
        self.initial = {
            value.name or "": array
            for value in graph.inputs
            if (array := stated_numbers.initial_array(value)) is not None
        }
        self.outputs = [values[id(value)] for value in graph.outputs]
        self.interiors = [values[id(v)] for v in computed_values if id(v) not in outputs]

    def _complete_types(self, values: Sequence[ir.Value]) -> dict[str, ir.Value]:
        """Give values the types that the file does not state; return what is inferred, by name, if anything is."""
        if not any(value.shape is None or value.type is None for value in values):
            return {}
        known = _inferred(self.model)
        for value in values:
            if value.type is None and value.name in known:
                value.type = known[value.name].type
        return known

    @cached_property
    def _integer_ends(self) -> dict[str, tuple[float, int]]:
        """Quantized inputs and outputs, and what their integers mean: another model may have real numbers there."""
        return integer_ends(self.model) if self._quantized else {}

    def _value(
        self, value: ir.Value, orders: dict[int, int], bounds: dict[str, int], known: Mapping[str, ir.Value]
    ) -> ModelValue:
        node = value.producer()
        dtype = None if value.dtype is None or value.dtype == ir.DataType.UNDEFINED else value.dtype.numpy()
        notes = value.metadata_props
        name = value.name or ""
        dims = known[name].shape if value.shape is None and name in known else value.shape
        shape, symbols = _extents(dims)
        meaning = self._integer_ends.get(name, ())
        return ModelValue(
            name=name,
            dtype=dtype,
            shape=shape,
            aliases=(notes[TENSOR],) if TENSOR in notes else (),
            source_values=tuple(Holds.of(notes)),
            operator=node.op_type if node else "",
            node=(node.name or "") if node else "",
            order=orders.get(id(value), -1),
            quantized=self._quantized and (dtype is None or (dtype.kind in "iu" and dtype.itemsize <= 2)),
            scale=meaning[:1],
            zero=meaning[1:],
            bound=bounds.get(name),
            distinct=node is None and name in self._written,
            places=self._places.get(name),
            symbols=symbols,
            operands=stated_numbers.operand_names(node),
            normalization=Normalization.stored(notes[NORMALIZE], Holds.of(notes), tuple(dims or ()))
            if NORMALIZE in notes
            else None,
            fed=self._fed,
            step=stated_numbers.dequantized_step(node) if self._steps else 0.0,
        )


def _declared_part(properties: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the outputs, by the source's names, of the part of it that a model declares to be, as `relayout.cut`."""
    try:
        return tuple([str(name) for name in json.loads(properties[CUT])["outputs"]])
    except (ValueError, TypeError, KeyError, RecursionError):  # not there, or not as we write it
        return None


def _multiplies_integers(node: ir.Node) -> bool:
    """Tell whether a node computes with weights of 8 bits."""
    return any(
        value is not None
        and value.const_value is not None
        and value.dtype in (ir.DataType.INT8, ir.DataType.UINT8)
        and len(value.const_value.shape) > 1
        for value in node.inputs
    )


def _remove(path: Path) -> None:
    for file in (path, path.with_name(path.name + ".data")):
        file.unlink(missing_ok=True)


def _inferred(model: ir.Model) -> dict[str, ir.Value]:
    """Values of the main graph with what ONNX infers of them, for a file that does not state it.

    What an operator is fed needs a type, and has all of its axes.
    """
    other = model.clone()
    complete(other, outputs_of)
    return {value.name or "": value for node in other.graph for value in node.outputs}


def _extents(shape: ir.Shape | None) -> tuple[tuple[int | None, ...] | None, tuple[str, ...]]:
    """Return the extents of a shape that are numbers, and the names of the others."""
    if shape is None:
        return None, ()
    numbers = tuple(dim if isinstance(dim, int) else None for dim in shape)
    return numbers, tuple("" if isinstance(dim, int) else dim.value or "" for dim in shape)
