"""What the subgraphs of one import share, and how one of them is put inside another.

A subgraph has tensors of its own; nodes, initializers, names, state and verdicts are the whole model's. The body of an
If or a Loop is a subgraph written once more, reading what it needs from outside by name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.metadata import OWN
from relayout.formats.tflite.container.model import Model, Operator, Subgraph
from relayout.formats.tflite.importing.builder import Builder, Handle, Variables
from relayout.formats.tflite.importing.import_passes import LITERAL, ImportPasses
from relayout.formats.tflite.importing.operation import mark_spelled
from relayout.formats.tflite.importing.registry import Entry, Unsupported
from relayout.formats.tflite.importing.tensors import Quant, Tensors, has_type

State = Literal["zero", "io"]

Given = ir.Value | Handle  # what stands behind a tensor: a value, or what a resource tensor refers to


class Choices(NamedTuple):
    """The options with which a model is read."""

    # ONNX opset to write, 18 to 23; by default the least that the model needs: 19 to compare texts, 20 for GELU, 21 for
    # quantized tensors of 16 or 4 bits
    opset: int | None = None
    # what becomes of quantized tensors. `"qdq"`, the default: integers that each operator dequantizes. `"float"`:
    # constants become real numbers, and nothing is quantized at run time.
    quant: Quant = "qdq"
    # which of the file's signatures to read, by its key; by default the first, or the first subgraph
    signature: str | None = None
    # what becomes of variables, of recurrent networks too, which TFLite keeps from one run to the next and ONNX does
    # not. `"zero"`, the default: the interface is the file's, and every run starts from the initial values. `"io"`:
    # each variable that is read is one more input, `NAME`, and what it holds in the end one more output, `NAME_next`.
    # Feed first what the input's metadata `relayout.initial` says (JSON: one number, or all; it is not there where that
    # is no constant, or one of more than 4,096 numbers).
    state: State = "zero"
    # custom operators to carry over as they are: their name in the file -> the domain to put them in
    custom_ops: Mapping[str, str] = {}
    passes: ImportPasses = LITERAL  # what is done to the file besides, by whoever wants it; by default nothing
    # read only what is computed from these tensors, by their own names or the signature's (see `cutting`)
    inputs: Sequence[str] = ()
    # read only what these tensors are computed from; what lies outside is not translated at all
    outputs: Sequence[str] = ()
    # dynamic dimension of an input -> its extent, which all that follows goes by. Others are left out:
    # `ModelFacts.fixed_dims` says which are not.
    dims: Mapping[str, int] = {}


AS_IT_IS = Choices()  # the whole file, literally

NO_TRANSLATION = "no translation"  # the reason that goes without saying

Answer = TypeVar("Answer")


class Undecided(Unsupported):
    """Raised by a translation whose subgraph holds an operator that is counted as unsupported already."""


class Program:
    """One import: the file's subgraphs, and the ONNX graph that they are written into."""

    def __init__(self, model: Model, builder: Builder, choices: Choices, find: Callable[[str], Entry | None]) -> None:
        self.model, self.builder, self.choices, self.find = model, builder, choices, find
        self.variables = Variables(builder, model, io=choices.state == "io")
        self.tables: dict[str, dict[str | int, str | int]] = {}
        self.domains: dict[str, int] = {}
        self.initialised: set[int] = set()
        self.multiplies_reals = False
        """Whether products of real numbers and integers are written as those of real numbers."""
        self.unsupported: dict[str, dict[str, None]] = {}
        self._answers: dict[Callable[[Program], Any], Any] = {}
        self._open: list[int] = []
        self._constants: dict[int, dict[int, ir.Value]] = {}
        # A body may be written several times; this bounds how often damaged files make it happen.
        self._budget = 20_000 + 16 * sum(len(s.tensors) + len(s.operators) + 1 for s in model.subgraphs)

    def tensors(self, subgraph: Subgraph) -> Tensors:
        """Return the tensors of a subgraph, in this program."""
        is_export = any(name == OWN for name, _ in self.model.metadata)
        return Tensors(subgraph, self.builder, quant=self.choices.quant, is_export=is_export)

    def once(self, question: "Callable[[Program], Answer]") -> Answer:
        """Return the answer to a question about the whole import, which is asked once."""
        if question not in self._answers:
            self._answers[question] = question(self)
        return cast("Answer", self._answers[question])

    @property
    def nested(self) -> bool:
        """Tell whether the subgraph now being written is part of another."""
        return bool(self._open)

    def subgraph(self, index: int, place: str) -> Subgraph:
        """Return the subgraph that an operator names."""
        if not 0 <= index < len(self.model.subgraphs):
            raise ReadError(f"there is no subgraph {index}", where=place)
        return self.model.subgraphs[index]

    def inline(
        self,
        index: int,  # which subgraph
        operands: Sequence[Given],  # one for each of its inputs
        place: str,  # the operator that names the subgraph
    ) -> list[Given]:
        """Write a subgraph's nodes here, its inputs being these; returns its outputs."""
        return self.write(self.subgraph(index, place), index, operands, place)

    def write(self, subgraph: Subgraph, index: int, operands: Sequence[Given], place: str) -> list[Given]:
        """Write the nodes of a part of a subgraph, or of another form of it; its constants are the subgraph's."""
        if index in self._open:
            raise ReadError(f"subgraph {index} contains itself", where=place)
        if len(operands) != len(subgraph.inputs) or len(set(subgraph.inputs)) != len(subgraph.inputs):
            raise ReadError(f"{len(operands)} operands for the {len(subgraph.inputs)} of a subgraph", where=place)
        self._budget -= 1 + len(subgraph.tensors) + len(subgraph.operators)
        if self._budget < 0:
            raise Unsupported("subgraphs that are used too often")
        tensors = self.tensors(subgraph)
        tensors.constants = self._constants.setdefault(index, {})
        tensors.name_all()
        for position, value in zip(subgraph.inputs, operands, strict=True):
            if isinstance(value, Handle):
                tensors.handles[position] = value
            else:
                tensors.lend(subgraph.tensors[position], value)
        self._open.append(index)
        try:
            self.run(tensors)
        finally:
            self._open.pop()
        if any(position in tensors.tainted for position in subgraph.outputs):
            raise Undecided("an operator in a subgraph")
        return [tensors.handles.get(i) or tensors.value(subgraph.tensors[i]) for i in subgraph.outputs]

    def run(self, tensors: Tensors) -> None:
        """Translate the operators of a subgraph, in order."""
        for operator in tensors.subgraph.operators:
            self._translate(operator, tensors)

    def _translate(self, operator: Operator, tensors: Tensors) -> None:
        entry = self.find(operator.name)
        tainted = not tensors.tainted.isdisjoint(operator.inputs)
        unsure = tainted or not tensors.unsure.isdisjoint(operator.inputs)
        try:
            if entry is None:
                raise Unsupported(NO_TRANSLATION)
            if has_type(operator, tensors.subgraph, TensorType.STRING):
                if not entry.texts:
                    raise Unsupported("texts")
                if self.builder.opset < entry.texts:
                    raise Unsupported(f"texts need opset {entry.texts}")
            try:
                complex_ = has_type(operator, tensors.subgraph, TensorType.COMPLEX64)
                passes = self.choices.passes
                operation, begin = passes.operation(operator, entry, tensors, self), len(self.builder.nodes)
                if complex_:
                    entry.of_complex(operation)
                elif not any(written(operation) for written in passes.alternatives.get(operator.name, ())):
                    entry.translate(operation)
                mark_spelled(operation, self.builder.nodes[begin:])
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # Operands that contradict each other show first where a translation computes with them.
                raise ReadError(
                    f"{operator.name} does not fit its operands ({type(error).__name__}: {error})", where=operator.place
                ) from error
        except Undecided:
            _give_up(operator, tensors)
        except Unsupported as problem:
            missing = problem.reason == NO_TRANSLATION
            if missing or not tainted:
                key = operator.name if missing else f"{operator.name} ({problem.reason})"
                self.unsupported.setdefault(key, {})[operator.place] = None
            _give_up(operator, tensors)
        except ReadError:
            if not unsure:
                raise
            _give_up(operator, tensors)
        if unsure:
            tensors.unsure.update(operator.outputs)


def _give_up(operator: Operator, tensors: Tensors) -> None:
    for index in operator.outputs:
        tensors.tainted.add(index)
        tensors.placeholder(tensors.subgraph.tensors[index])
