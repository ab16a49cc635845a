"""Read a TFLite model as an ONNX model, literally: same operators, same order of axes, same names, same weights.

Nothing is pushed or cancelled here, and nothing folded but tensors of few elements that follow from constants and
extents: shapes. Where ONNX wants channels first, the operator stands between two
Transposes; whoever decides layouts later finds all of them and removes what can be removed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from pathlib import Path

import onnx_ir as ir

from relayout.errors import NamesError, ReadError, RelayoutError, UnsupportedError, nearest, nearest_values
from relayout.formats.flatbuffer import Source
from relayout.formats.onnx.parts import once
from relayout.formats.recognition import PRODUCER, SOURCE_FORMAT, is_tflite
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load, open_source
from relayout.formats.tflite.container.metadata import Metadata, metadata
from relayout.formats.tflite.container.model import Model, Operator, Signature, Subgraph, Tensor
from relayout.formats.tflite.container.places import places_in_words
from relayout.formats.tflite.importing.builder import Builder
from relayout.formats.tflite.importing.extents import without_unread
from relayout.formats.tflite.importing.program import AS_IT_IS, Choices, Program
from relayout.formats.tflite.importing.registry import Entry, Unsupported, entry_of
from relayout.formats.tflite.importing.tensors import sufficient_opset
from relayout.formats.tflite.provenance import load_provenance
from relayout.formats.tflite.spelled_out import VARIABLES, dump_variables
from relayout.graph.facts import add_facts, add_notes
from relayout.layout.normalization import NORMALIZE
from relayout.layout.stored_as import DEFAULT_SIGNATURE, SIGNATURE, SIGNATURE_KEY, TENSOR
from relayout.light_dataclass import dataclass

# A subgraph while tensors of it are changed, and others added, before any of it is translated.


@dataclass
class SubgraphRewriting:
    """One subgraph, and what its tensors are to become."""

    subgraph: Subgraph
    tensors: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = list(self.subgraph.tensors)

    def add(self, tensor: Tensor, suffix: str) -> int:
        """Return one more tensor, called as this one and something more; its index."""
        index = len(self.tensors)
        beside = tensor.index if tensor.beside < 0 else tensor.beside
        self.tensors.append(replace(tensor, index=index, name=f"{tensor.name}/{suffix}", beside=beside))
        return index


CUSTOM = "CUSTOM "  # the beginning of a custom operator's name, before its own

MOST_ENDS = 300  # characters of names that an error proposes for `--outputs`

COMPILED = {f"{CUSTOM}{name}": None for name in ("edgetpu-custom-op", "ethos-u")}
"""Operators that hold the program of an accelerator, in which nothing can be converted."""

IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
"""Opsets that can be written -> the IR version that came with them."""


def read(source: Path | str | bytes, choices: Choices = AS_IT_IS) -> ir.Model:
    """Read a TFLite model as an ONNX model that computes the same.

    1. Quantized tensors hold the integers that the file's tensors hold; each operator dequantizes its operands and
       quantizes its result, those that only move elements, too, unless operand and result mean other numbers.
    2. Constants are views into the file's bytes, which stay in memory as long as the model lives; of a file above
       256 MB they are read when they are used.
    3. Every value has a type and a shape; dimensions known only at run time have names.

    Args:
        source: a path, or the file's bytes.
        choices: how it is read.

    Raises:
        ReadError: the file is no TFLite model, or is damaged.
        UnsupportedError: operators without a translation: all of them, counted.
        NamesError: `inputs` or `outputs` name what cannot be an end of a part.
    """
    if choices.opset is not None and choices.opset not in IR_VERSIONS:
        raise RelayoutError(f"opset {choices.opset} cannot be written; choose {min(IR_VERSIONS)} to {max(IR_VERSIONS)}")
    data = open_source(source if isinstance(source, bytes) else Path(source))
    model = load(data)
    if choices.state not in ("zero", "io"):
        raise RelayoutError(f"there is no state {choices.state!r}; choose 'zero' or 'io'")
    if choices.quant not in ("qdq", "float"):
        raise RelayoutError(f"there is no quant {choices.quant!r}; choose 'qdq' or 'float'")
    with places_in_words(model.subgraphs, attrgetter("name")):
        return _imported(model, data, "main" if isinstance(source, bytes) else Path(source).stem, choices)


def _imported(model: Model, data: Source, stem: str, choices: Choices) -> ir.Model:
    opset = sufficient_opset(model, quant=choices.quant) if choices.opset is None else choices.opset
    chosen = signature_of(model, choices.signature)
    index = chosen.subgraph if chosen else 0
    whole, file_metadata = model.subgraphs[index], metadata(model, index, data)
    unknown = _unknown_custom_ops(model, choices.custom_ops)
    if choices.inputs or choices.outputs:
        part = cut(model, index, chosen, choices.inputs, choices.outputs)
        model = model._replace(subgraphs=(*model.subgraphs[:index], part, *model.subgraphs[index + 1 :]))
    model = _rewritten(model)
    if choices.quant == "qdq":
        for over_file in choices.passes.over_file:  # after the cut: the interface, wherever it is, keeps its types
            model = over_file.run(None, model=model)
    subgraph = model.subgraphs[index]
    program = Program(model, Builder(opset), choices, _entry)
    imported = _Import(program, subgraph, chosen, choices.dims)
    result = imported.run(subgraph.name or stem, unknown)
    add_facts(result, is_tflite=True, is_annotated=False, fixed_dims=frozenset(imported.fixed))
    _describe(result, file_metadata, whole)
    add_notes(result, *unknown)
    add_facts(result, begun_anew=tuple(program.variables.begun_anew))
    if not choices.inputs:
        _state_normalization(result, model)
    if chosen and index:
        result.metadata_props[SIGNATURE] = chosen.key
    if chosen and chosen.key != DEFAULT_SIGNATURE:
        result.metadata_props[SIGNATURE_KEY] = chosen.key
    others = [repr(signature.key) for signature in model.signatures if signature is not chosen]
    if chosen and others and choices.signature is None:
        add_notes(result, f"of several signatures this is {chosen.key!r}; --signature reads {' or '.join(others)}")
    return result


def signature_of(model: Model, key: str | None) -> Signature | None:
    """Return the signature of a key, or the first; None where there is none and none is asked for.

    Raises:
        ReadError: there is none of that key.
    """
    if key is None:
        return model.signatures[0] if model.signatures else None
    for signature in model.signatures:
        if signature.key == key:
            return signature
    near = nearest(key, (signature.key for signature in model.signatures)).removeprefix("; ")
    raise ReadError(f"there is no signature {key!r}", hint=near or ("" if model.signatures else "the file has none"))


def key_in(path: Path, key: str | None) -> str | None:
    """Return the key of a signature where a file is a `.tflite` that has it; None elsewhere."""
    has_key = key is not None and is_tflite(path) and any(each.key == key for each in load(path).signatures)
    return key if has_key else None


def _unknown_custom_ops(model: Model, custom_ops: Mapping[str, str]) -> list[str]:
    """Return what to say of names of custom operators that the file does not have."""
    operators = (each.name for subgraph in model.subgraphs for each in subgraph.operators) if custom_ops else ()
    known = {name.removeprefix(CUSTOM): None for name in operators if name.startswith(CUSTOM)}
    return [
        f"--custom-op {name}: the file has no custom operator of that name{nearest(name, known)}"
        for name in custom_ops
        if name not in known
    ]


def _advice(unsupported: Mapping[str, object], ends: str) -> str:
    """Return what to do about custom operators that have no translation; `ends` are the values before them."""
    if not COMPILED.keys().isdisjoint(unsupported):
        return "the file is compiled for an accelerator: give the .tflite that its compiler read"
    names = [name.removeprefix(CUSTOM) for name in unsupported if name.startswith(CUSTOM)]
    if not names:
        return ""
    name = names[0] if len(names) == 1 and " " not in names[0] else "NAME"
    return (
        f"--custom-op {name}=DOMAIN keeps a custom operator as a node of that domain, and --outputs {ends} ends the"
        " result before it"
    )


def _describe(result: ir.Model, file_metadata: Metadata, subgraph: Subgraph) -> None:
    """Write what the file says of itself into the model."""
    result.doc_string = file_metadata.description or None
    result.metadata_props.update(file_metadata.properties)
    add_notes(result, *file_metadata.notes)
    own = {subgraph.tensors[i].name: text for i, text in file_metadata.texts.items()}
    for value in (*result.graph.inputs, *result.graph.outputs):
        if text := own.get(value.metadata_props.get(TENSOR, value.name or "")):
            value.doc_string = text


def _state_normalization(result: ir.Model, model: Model) -> None:
    """Say of inputs what the file does to them, where relayout wrote it and says so."""
    provenance = load_provenance(model)
    for value in result.graph.inputs:
        normalization = provenance.normalization(
            value.metadata_props.get(TENSOR, value.name or ""), list(value.shape or ())
        )
        if normalization is not None:
            value.metadata_props[NORMALIZE] = normalization._replace(of=value.name or "").dump()


def _rewritten(model: Model) -> Model:
    """Return a model whose lists are tensors and whose dilated convolutions are one operator each."""
    if any(tensor.type == TensorType.VARIANT for subgraph in model.subgraphs for tensor in subgraph.tensors):
        from relayout.formats.tflite.importing.lists import as_tensors

        model = as_tensors(model)
    if any(op.name == "BATCH_TO_SPACE_ND" for subgraph in model.subgraphs for op in subgraph.operators):
        from relayout.formats.tflite.importing.dilated import dilated

        model = dilated(model)
    return model


def _entry(name: str) -> Entry | None:
    entry = entry_of(name)
    if entry is not None or not name.startswith(CUSTOM):
        return entry
    from relayout.formats.tflite.importing.operators.custom import CARRIED

    return CARRIED


class _Import:
    def __init__(
        self, program: Program, subgraph: Subgraph, signature: Signature | None, dims: Mapping[str, int]
    ) -> None:
        self.program, self.subgraph, self.signature, self.dims = program, subgraph, signature, dims
        self.fixed: set[str] = set()
        self.builder, self.tensors = program.builder, program.tensors(subgraph)

    def run(
        self,
        name: str,  # of the graph
        unknown: Sequence[str],  # what to say of custom operators that the user names and the file does not have
    ) -> ir.Model:
        """Translate the subgraph."""
        extra = self.name_interface()
        self.tensors.name_all()
        inputs = [self.graph_input(index, first=i == 0) for i, index in enumerate(self.subgraph.inputs)]
        self.program.run(self.tensors)
        if self.program.unsupported:
            unsupported = {k: (len(v), next(iter(v))) for k, v in self.program.unsupported.items()}
            advice = _advice(unsupported, self.ends_before())
            raise UnsupportedError(unsupported, "; ".join([*unknown, advice]) if advice else "")
        outputs = self.graph_outputs(extra) + self.program.variables.outputs()
        variables = self.program.variables.finish()
        variable_values = list(self.program.variables.current.values())
        nodes = without_unread(self.builder.nodes, [*outputs, *variable_values], self.builder.spare)
        # Operands that became attributes or shapes leave their constants unread.
        assigned = {id(value) for value in variable_values}
        used = [value for value in self.builder.initializers if value.uses() or id(value) in assigned]
        graph = ir.Graph(
            [*inputs, *self.program.variables.inputs.values()],
            outputs,
            nodes=nodes,
            initializers=used,
            opset_imports={"": self.builder.opset, **self.program.domains},
            name=name,
        )
        return ir.Model(
            graph,
            ir_version=IR_VERSIONS[self.builder.opset],
            producer_name=PRODUCER,
            metadata_props={SOURCE_FORMAT: "tflite"} | ({VARIABLES: dump_variables(variables)} if variables else {}),
        )

    def ends_before(self) -> str:
        """Return what `--outputs` takes to end the result before the only operator without a translation."""
        places = [place for each in self.program.unsupported.values() for place in each]
        operator = next((each for each in self.subgraph.operators if each.place in places), None)
        computed = {index: None for each in self.subgraph.operators for index in each.outputs}
        ends = [] if operator is None else [index for index in dict.fromkeys(operator.inputs) if index in computed]
        names = [self.subgraph.tensors[index].name for index in ends]
        known = [tensor.name for tensor in self.subgraph.tensors]
        are_clear = all(name and "," not in name and known.count(name) == 1 for name in names)
        if len(places) != 1 or not names or not are_clear or sum(map(len, names)) > MOST_ENDS:
            return "VALUE,…"
        return shlex.quote(",".join(names))

    # The interface.

    def name_interface(self) -> list[str]:
        """Give inputs and outputs the names that the signature has for them; returns a name for each output."""
        signature = self.signature
        input_names = {index: name for name, index in reversed(signature.inputs if signature else ()) if name}
        output_names: dict[int, list[str]] = {}
        for name, index in signature.outputs if signature else ():
            if name:
                output_names.setdefault(index, []).append(name)
        names, unique = self.tensors.names, self.builder.names.unique
        for index in self.subgraph.inputs:
            if index in input_names and index not in names:
                names[index] = unique(input_names[index])
        outputs = []
        for index in self.subgraph.outputs:
            called = output_names.get(index) or [self.subgraph.tensors[index].name or f"tensor_{index}"]
            if index in output_names and index not in names:
                names[index] = unique(called[0])
            # A tensor that is given twice has two names; the last is that of all further times.
            outputs.append(called.pop(0) if len(called) > 1 else called[0])
        return outputs

    def graph_input(self, index: int, *, first: bool) -> ir.Value:
        tensor = self.subgraph.tensors[index]
        named = (
            dim if dim is not None else "batch" if first and axis == 0 else self.tensors.symbol(tensor, axis)
            for axis, dim in enumerate(self.tensors.declared(tensor))
        )
        shape = tuple(self.extent(dim) if isinstance(dim, str) else dim for dim in named)
        try:
            dtype = self.tensors.dtype(tensor)
        except Unsupported as problem:
            raise UnsupportedError({f"input of {problem.reason}": (1, tensor.place)}) from None
        value = self.builder.value(self.tensors.names[index], dtype, shape)
        self.tensors.bind(tensor, value)
        self.record(value, index)
        return value

    def extent(self, name: str) -> int | str:
        """Return what a dynamic dimension is fixed to, or its name."""
        extent = self.dims.get(name, 0)
        if extent < 1:
            return name
        self.fixed.add(name)
        return extent

    def graph_outputs(self, names: list[str]) -> list[ir.Value]:
        """The outputs; one that no node computes, or that is there twice, is given a node and a name of its own."""
        outputs: list[ir.Value] = []
        for index, name in zip(self.subgraph.outputs, names, strict=True):
            try:
                value = self.tensors.value(self.subgraph.tensors[index])
            except Unsupported as problem:
                place = self.subgraph.tensors[index].place
                raise UnsupportedError({f"output: {problem.reason}": (1, place)}) from None
            if value.producer() is None or any(value is other for other in outputs):
                shape, dtype = value.shape, value.dtype
                if shape is None or dtype is None:
                    raise ValueError(f"{value.name} has no type")
                dims = tuple(d if isinstance(d, int) else d.value for d in shape)
                if value.producer() is None and value.name == name and index not in self.subgraph.inputs:
                    value.name = self.builder.names.instead(name, f"{name}/constant")
                (value,) = self.builder.emit("Identity", [value], [(name, dtype, dims)])
            self.record(value, index)
            outputs.append(value)
        return outputs

    def record(self, value: ir.Value, index: int) -> None:
        own = self.subgraph.tensors[index].name
        if own and own != value.name:
            value.metadata_props[TENSOR] = own


# A part of a file's graph: what lies between named tensors. Operators outside of it are not even looked at.


def cut(
    model: Model,  # the file
    index: int,  # which subgraph
    signature: Signature | None,  # the signature that names its ends
    inputs: Sequence[str] | None,  # names of its inputs, or of tensors in between
    outputs: Sequence[str] | None,  # likewise
) -> Subgraph:
    """Return the part of a subgraph that computes `outputs` from `inputs`; the rules are those of `formats.onnx.cut`.

    A name is a tensor's own or the signature's for it. Of several tensors of one name, `NAME#INDEX` means one.

    Raises:
        NamesError: a name cannot be an end of the part.
    """
    subgraph = model.subgraphs[index]
    named = _Names(model, index, signature)
    starts = [named.find("inputs", name) for name in once("inputs", inputs or ())]
    ends = tuple(named.find("outputs", name) for name in once("outputs", outputs or ())) or subgraph.outputs
    named.refuse_constants("inputs", inputs or (), starts)
    named.refuse_constants("outputs", outputs or (), ends)
    for start, name in zip(starts, inputs or (), strict=True):
        if start in ends:
            raise NamesError(f"{name!r} is an input and an output of the part: nothing lies in between")
    _refuse_inputs(subgraph, outputs or (), ends)
    operators, read = _needed(subgraph, set(starts), ends)
    for start, name in zip(starts, inputs or (), strict=True):
        if start not in read and start not in subgraph.inputs:
            raise NamesError(f"--inputs {name}: none of the outputs is computed from it, or only through other inputs")
    starts += [i for i in subgraph.inputs if i in read and i not in starts]
    return _with_stand_ins(subgraph._replace(inputs=tuple(starts), outputs=ends, operators=operators))


def _refuse_inputs(subgraph: Subgraph, names: Sequence[str], ends: Sequence[int]) -> None:
    """Refuse inputs of the model as outputs of a part, but those that the model itself gives back."""
    for end, name in zip(ends, names, strict=False):
        if end in subgraph.inputs and end not in subgraph.outputs:
            raise NamesError(f"--outputs {name}: it is an input of the model: nothing lies in between")


def _with_stand_ins(part: Subgraph) -> Subgraph:
    """Of an operator with several results one may be an input now and another still be computed: it gets a stand-in."""
    tensors, operators = list(part.tensors), []
    for operator in part.operators:
        results = list(operator.outputs)
        for slot, i in enumerate(results):
            if i in part.inputs:
                results[slot] = len(tensors)
                tensors.append(replace(tensors[i], index=len(tensors), name=f"{tensors[i].name}__unread"))
        operators.append(operator._replace(outputs=tuple(results)))
    return part._replace(tensors=tuple(tensors), operators=tuple(operators))


def _needed(subgraph: Subgraph, starts: set[int], ends: Sequence[int]) -> tuple[tuple[Operator, ...], set[int]]:
    """Return the operators that the ends need, in order, and every tensor that is read.

    Operators without results (assignments, imports of tables) are kept where the part has state: a resource, which any
    handle of its name reaches, or a body, which may make one.
    """
    producers = {i: operator for operator in subgraph.operators for i in operator.outputs if i not in starts}
    acting = [operator for operator in subgraph.operators if not operator.outputs]
    needed_ids: set[int] = set()
    read: set[int] = set()
    pending = list(ends)
    while pending:
        while pending:
            i = pending.pop()
            if i < 0 or i in read:
                continue
            read.add(i)
            producer = producers.get(i)
            if producer is not None and id(producer) not in needed_ids:
                needed_ids.add(id(producer))
                pending += producer.inputs
        if any(_has_state(subgraph, operator) for operator in subgraph.operators if id(operator) in needed_ids):
            pending = [i for operator in acting if id(operator) not in needed_ids for i in operator.inputs]
            needed_ids.update(map(id, acting))
    return tuple(operator for operator in subgraph.operators if id(operator) in needed_ids), read


def _has_state(subgraph: Subgraph, operator: Operator) -> bool:
    fields = operator.options.fields if operator.options is not None else {}
    resources = (i for i in (*operator.inputs, *operator.outputs) if i >= 0)
    return any(subgraph.tensors[i].type in (TensorType.RESOURCE, TensorType.VARIANT) for i in resources) or any(
        name.endswith(("subgraph_index", "subgraph")) for name in fields
    )


class _Names:
    """The names by which a user may call tensors."""

    def __init__(self, model: Model, index: int, signature: Signature | None) -> None:
        self.model, self.index = model, index
        self.own: dict[str, list[int]] = {}
        for tensor in model.subgraphs[index].tensors:
            name = tensor.name or f"tensor_{tensor.index}"
            self.own.setdefault(name, []).append(tensor.index)
        ends = (signature.outputs, signature.inputs) if signature else ((), ())
        # An input and an output may have one name in a signature: each side's own comes last, and counts.
        by_side = {"inputs": (*ends[0], *ends[1]), "outputs": (*ends[1], *ends[0])}
        self.signed = {
            side: {name: position for name, position in entries if name} for side, entries in by_side.items()
        }
        subgraph = model.subgraphs[index]
        operator_outputs = {i for operator in subgraph.operators for i in operator.outputs}
        self.computed = operator_outputs | {*subgraph.inputs, *subgraph.outputs}

    def refuse_constants(self, side: str, names: Sequence[str], tensors: Sequence[int]) -> None:
        for name, tensor in zip(names, tensors, strict=False):
            if tensor not in self.computed:
                raise NamesError(f"--{side} {name}: it is a constant")

    def find(self, side: str, name: str) -> int:
        if name in self.signed[side]:
            return self.signed[side][name]
        if not (indices := self.own.get(name, [])):
            stem, _, number = name.rpartition("#")
            indices = [i for i in self.own.get(stem, []) if str(i) == number]
        if len(indices) == 1:
            return indices[0]
        if indices:
            listed = ", ".join(f"{name}#{i}" for i in indices[:8])
            raise NamesError(f"--{side} {name}: {len(indices)} tensors have that name; say which: {listed}")
        for i, other in enumerate(self.model.subgraphs):
            if i != self.index and any(tensor.name == name for tensor in other.tensors):
                raise NamesError(
                    f"--{side} {name}: the tensor lies inside the body of another operator; a cut goes around it"
                )
        known = (each for each, tensors in self.own.items() if not self.computed.isdisjoint(tensors))
        near = nearest_values(name, [*self.signed[side], *known])
        raise NamesError(f"--{side} {name}: the model has no tensor of that name{near}")
