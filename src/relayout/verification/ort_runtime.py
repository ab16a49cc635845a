"""Sessions of ONNX Runtime, in the child process of `runtimes`, and runs of them."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.errors import WITH_RUNTIMES, MissingRuntimeError
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.qonnx import define_quantizers
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_nodes
from relayout.rules import outputs_of
from relayout.rules.internal_nhwc import is_internal, standard_of
from relayout.verification.runtimes import ChildModel, FailedError, asked
from relayout.verification.side import Array, Feeds, RunError

# Sessions of ONNX Runtime, in the child process of `runtimes`.

PACKAGE = "onnxruntime"
NEEDED = f"running ONNX needs ONNX Runtime: {WITH_RUNTIMES}"  # what to say where it is not there
IN_FULL = MappingProxyType({"session.qdq_matmulnbits_accuracy_level": "1"})
"""The configuration of every session.

By default ONNX Runtime, from 1.32 on, rounds the other operand of a product with weights of 8 bits to 8 bits as well.
"""


class End(NamedTuple):
    """An input or output of a session: its name, and its type in ONNX Runtime's words."""

    name: str
    type: str


class Session:
    """A model in ONNX Runtime, on its CPU provider, with one thread.

    Raises:
        FailedError: ONNX Runtime does not load it; AbortedError: it ends its process over it.
        MissingRuntimeError: it is not installed.
    """

    def __init__(
        self,
        source: Path | bytes,  # its file, which stays as it is, or its bytes
        optimized: bool = True,  # with ONNX Runtime's optimizations
        # its configuration besides `IN_FULL`, such as `{"session.x64quantprecision": "1"}`
        entries: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        file = source if isinstance(source, bytes) else os.path.abspath(source)  # the process may be elsewhere
        self._child_model = ChildModel("session", file, optimized, {**IN_FULL, **entries})
        self.inputs, self.outputs = ([End(*end) for end in ends] for ends in _installed(self._child_model.open))

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """Return the outputs of these names, or all.

        Raises:
            FailedError: ONNX Runtime fails; AbortedError: it ends its process.
        """
        outputs: list[Any] = self._child_model.ask("run", names, dict(feeds))
        return outputs


def runtime_version() -> str:
    """Return the version of ONNX Runtime.

    Raises:
        MissingRuntimeError: it is not installed.
    """
    return str(_installed(partial(asked, "version", PACKAGE)))


def _installed(ask: Callable[[], Any]) -> Any:
    """Return the answer to a question, for which ONNX Runtime has to be there."""
    if find_spec(PACKAGE) is None:
        raise MissingRuntimeError(NEEDED)
    try:
        return ask()
    except FailedError as error:
        if error.kind in ("ImportError", "ModuleNotFoundError"):
            raise MissingRuntimeError(f"{NEEDED} ({error})") from None
        raise


# Runs of sessions of ONNX Runtime, whose results are arrays.


class OrtRunner:
    """A session, whose results are arrays."""

    def __init__(self, label: str, session: Session, initial: Feeds) -> None:
        self._label, self._session, self._initial = label, session, initial
        self._inputs = {value.name for value in session.inputs}
        self._shown = {value.name for value in session.outputs if _is_plain(value.type)}

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the values of these names, outputs of this session's model, as far as numpy can hold them."""
        shown_names = [name for name in names if name in self._shown]
        fed = {name: array for name, array in {**self._initial, **feeds}.items() if name in self._inputs}
        try:
            results = self._session.run(shown_names, fed) if shown_names else []
        except FailedError as error:
            raise RunError("ONNX Runtime", self._label, error) from None
        return {name: _one_array(value) for name, value in zip(shown_names, results, strict=True)}


class ForcedOrt(NamedTuple):
    """A part of a model, some of whose values are given."""

    runner: OrtRunner
    model: ir.Model  # the part
    entries: Mapping[str, str]  # values of the model that are given -> the inputs for them
    levels: int  # to how many levels it rounds real numbers while it runs
    requantized: float = 0.0  # it computes with real numbers throughout

    @property
    def sources(self) -> dict[str, str]:
        """The part's inputs, in its order -> what they are in the model."""
        own = {inner: name for name, inner in self.entries.items()}
        return {name: own.get(name, name) for value in self.model.graph.inputs if (name := value.name)}

    @property
    def shown(self) -> dict[str, str]:
        """The values that it makes, each with its name in the part, which is the same."""
        return {name: name for value in self.model.graph.outputs if (name := value.name)}

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the values of these names."""
        return self.runner.run(feeds, names)


_PLAIN = frozenset(  # element types, in ONNX Runtime's words, that it hands out as numpy arrays
    "float double float16 bool string int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()  # noqa: SIM905
)


def _is_plain(kind: str) -> bool:
    """Tell whether ONNX Runtime hands out a value as numpy arrays: a tensor, a sequence, a map or an optional of them.

    >>> _is_plain("seq(tensor(float))"), _is_plain("tensor(bfloat16)")
    (True, False)
    """
    elements = re.findall(r"tensor\((\w+)\)", kind)
    return bool(elements) and _PLAIN.issuperset(elements)


def _one_array(value: Any) -> Array:
    """A value as one array: of a sequence its tensors, stacked, or one after another where their shapes differ."""
    if not isinstance(value, list | dict):
        return np.asarray(value)
    tensors = list(_tensors(value))
    if not tensors or len({tensor.shape for tensor in tensors}) == 1:
        return np.asarray(tensors)
    return np.concatenate([tensor.reshape(-1) for tensor in tensors])


def _tensors(value: Any) -> Iterator[Array]:
    """Yield the tensors in a sequence, and those of a map by its keys."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if not isinstance(value, list):
        yield np.asarray(value)
        return
    for item in value:
        yield from _tensors(item)


def make_loadable(model: ir.Model) -> tuple[str, ...]:
    """Write operators that ONNX Runtime does not load as those of the standard, in place; return what to say of it."""
    return (*_define_quantizers(model), *_run_as_standard(model))


# Quantizers of QONNX by their own definition, on real numbers: not by the integers that a result may have.


def _define_quantizers(model: ir.Model) -> tuple[str, ...]:
    if not define_quantizers(model, Names.of(model), by_integers=False):
        return ()
    complete(model, outputs_of)
    return ("quantizers of QONNX, run by their definition on real numbers",)


# Operators of ONNX Runtime's internal domain for channels last, as the standard's between Transposes.
#
# ONNX Runtime loads no file with operators of that domain: they are there from the time an execution provider has
# claimed them. To run such a model, each is written as what the domain means by it.


def _run_as_standard(model: ir.Model) -> tuple[str, ...]:
    """Write operators of the internal domain as the standard's between Transposes, in place; what to say of it."""
    nodes = [(node, key) for node in all_nodes(model.graph) if is_internal(node) and (key := standard_of(node))]
    if nodes:
        complete(model, outputs_of)
    count = 0
    for node, key in nodes:
        operand, result, graph = node.inputs[0], node.outputs[0], node.graph
        if operand is None or operand.shape is None or graph is None:
            continue
        rank = len(operand.shape)
        named = node.name or result.name
        to_first, to_last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
        first = ir.node("Transpose", [operand], {"perm": to_first}, name=f"{named}/to_first")
        last = ir.node("Transpose", [result], {"perm": to_last}, name=f"{named}/to_last")
        node.domain, node.op_type = key
        node.replace_input_with(0, first.outputs[0])
        value, name = last.outputs[0], result.name
        value.shape, value.type = result.shape, result.type
        result.replace_all_uses_with(value, replace_graph_outputs=True)
        last.replace_input_with(0, result)
        result.name, result.shape, value.name = f"{name}/channels_first", None, name
        first.outputs[0].name = f"{name}/operand"
        value.metadata_props.update(result.metadata_props)
        result.metadata_props.clear()
        model.opset_imports.setdefault(key[0], 1)
        graph.insert_before(node, first)
        graph.insert_after(node, last)
        count += 1
    if not count:
        return ()
    return (f"operators of com.ms.internal.nhwc, run as the standard's between Transposes: {count}",)
