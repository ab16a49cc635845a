"""Rules that users registered, held to the law of every rule on the nodes of a model of theirs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from relayout.errors import RelayoutError, nearest
from relayout.graph.source_names import label
from relayout.layout import Extent
from relayout.rules import Rule, outputs_of, registry
from relayout.verification.law import (
    MOST,
    Array,
    Runner,
    Tried,
    forced,
    one_node_sites,
    parted_inputs,
    position_of,
    two_factors,
)

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""How far real numbers may be off: kernels add in other orders."""


class Kept(NamedTuple):
    """A node on which a rule keeps its law.

    Args:
        node: the node's name.
        operator: its operator, `vendor:Swish`.
        orders: how many orders it ran in besides its own.
        reason: why it ran in none: it is a barrier, or nothing says what to feed it.
    """

    node: str
    operator: str
    orders: int
    reason: str = ""


def check(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    operators: Sequence[str] = (),
    run: Runner | None = None,
    dims: Mapping[str, int] | None = None,
    most: int = MOST,
) -> tuple[Kept, ...]:
    """Hold rules to their law: run each node in other orders on re-laid inputs, and compare with its re-laid outputs.

    >>> from relayout import rules
    >>> rules.check("model.onnx")                                    # every node that has a rule of yours
    (Kept(node='swish', operator='vendor:Swish', orders=11, reason=''),)

    Args:
        source: a model with such nodes, an ONNX file or in memory. Nodes in bodies are not looked at.
        operators: whose rules, `vendor:Swish`; by default those that were registered.
        run: what runs a model of one such node (and Reshapes): outputs in their order, from inputs by name. By default
            ONNX Runtime, which also knows the operator where the model has a function of that name.
        dims: dynamic dimension -> its extent; others get small ones.
        most: orders to try for each node.

    Raises:
        RelayoutError: rules break their law: all of them, with the node and the order; a rule is wrong by itself;
            nothing runs a node; or the model has no such node.
    """
    from relayout.formats.onnx import complete, read

    model = read(source)
    complete(model, outputs_of)
    wanted = _wanted(operators)
    nodes = [node for node in model.graph if _key(node) in wanted]
    if not nodes:
        names = ", ".join(map(_name, wanted)) or "an operator with a rule that was registered"
        raise RelayoutError(f"the model has no node of {names}: there is nothing to hold to a law")
    extents = _Extents(dims or {})
    found = [_checked(model, node, wanted[_key(node)], extents, run or _with_runtime, most) for node in nodes]
    broken = [each for each in found if isinstance(each, str)]
    if broken:
        raise RelayoutError("; ".join(broken))
    return tuple(each for each in found if isinstance(each, Kept))


def _wanted(operators: Sequence[str]) -> dict[tuple[str, str], Rule]:
    """Find the rules that are asked for."""
    if not operators:
        return {key: rule for key, rule in registry().items() if rule.place}
    named = {_name(key): key for key in registry()}
    for operator in operators:
        if operator not in named:
            raise RelayoutError(f"{operator} has no rule{nearest(operator, named)}")
    return {named[operator]: registry()[named[operator]] for operator in operators}


def _key(node: ir.Node) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def _name(key: tuple[str, str]) -> str:
    return f"{key[0]}:{key[1]}" if key[0] else key[1]


class _Extents:
    """The extents of dynamic dimensions: those that are given, and small ones that all differ."""

    def __init__(self, given: Mapping[str, int]) -> None:
        self.known: dict[str, int | str] = dict(given)
        self.unnamed = count(2)

    def of(self, value: ir.Value) -> list[int] | None:
        """Return a value's shape in numbers; None where its rank is not known."""
        return None if value.shape is None else [self._number(dim) for dim in value.shape]

    def _number(self, dim: int | ir.SymbolicDim) -> int:
        if isinstance(dim, int):
            return dim
        if dim.value is None:
            return next(self.unnamed)
        extent = Extent.of(dim.value)
        for name in sorted(extent.names):
            if name not in self.known:
                self.known[name] = 2 * next(self.unnamed)
        found = extent.fixed(self.known)
        return found.number if found.is_static else next(self.unnamed)


def _checked(model: ir.Model, node: ir.Node, rule: Rule, extents: _Extents, run: Runner, most: int) -> Kept | str:
    """Run a node in other orders: that its rule keeps its law, or how it breaks it."""
    name, operator = label(node), _name(_key(node))
    made = _alone(model, node, extents)
    if isinstance(made, str):
        return Kept(name, operator, 0, made)
    single, feed = made
    try:
        results = run(single, feed)
    except RelayoutError:
        raise
    except Exception as error:  # whatever a runtime raises
        said = " ".join(str(error).split())
        advice = "give `run=`, a function of a model and what it is fed"
        raise RelayoutError(f"nothing here runs {operator} at node {name!r}: {said}; {advice}") from error
    for value, array in zip(single.graph.output, results, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, kind, array.shape))
    sites = one_node_sites(single)
    if reason := sites.sites[position_of(sites)].reason:
        return Kept(name, operator, 0, reason)
    tried = 0
    for cut in (False, True)[
        : 1 + any(len(two_factors(extent)) > 1 for array in feed.values() for extent in array.shape)
    ]:
        copy = onnx.ModelProto()
        copy.CopyFrom(single)
        prepared, given = parted_inputs(copy, feed) if cut else (copy, feed)
        for each in _orders(prepared, given, run, most, cut):
            if isinstance(each, str) or (fault := _fault(each)):
                said = each if isinstance(each, str) else f"with {each.order} {fault}"
                return f"{rule.place} breaks its law at node {name!r}: {said}"
            tried += 1
    return Kept(name, operator, tried - 1)


def _orders(
    model: onnx.ModelProto, feed: Mapping[str, Array], run: Runner, most: int, cut: bool
) -> Iterator[Tried | str]:
    """Yield each order of the node; it ends where one of them does not run."""
    tried = forced(model, feed, run, most, cut=cut)
    while True:
        try:
            yield next(tried)
        except StopIteration:
            return
        except RelayoutError:
            raise
        except Exception as error:  # whatever a runtime, or a graph that is not consistent, ends with
            yield f"in another order it does not run: {' '.join(str(error).split())}"
            return


def _alone(model: ir.Model, node: ir.Node, extents: _Extents) -> tuple[onnx.ModelProto, dict[str, Array]] | str:
    """Make a model of one node, and what it is fed; or say why there is none."""
    inputs, constants, feed = [], [], dict[str, Array]()
    rng = np.random.default_rng(0)
    for value in dict.fromkeys(value for value in node.inputs if value is not None):
        name = value.name or ""
        if value.const_value is not None and not value.is_graph_input():
            tensor = ir.serde.serialize_tensor(value.const_value)
            tensor.name = name
            constants.append(tensor)
            continue
        shape = extents.of(value)
        if shape is None or value.dtype is None:
            return f"the type or rank of {name!r}, which it reads, is not known"
        feed[name] = _random(rng, shape, value.dtype)
        inputs.append(helper.make_tensor_value_info(name, int(value.dtype), shape))
    proto = ir.serde.serialize_node(node)
    proto.name = "node"
    outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = helper.make_graph([proto], "one", inputs, outputs, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    found = helper.make_model(graph, opset_imports=imports, ir_version=max(model.ir_version or 8, 8))
    found.functions.extend(map(ir.serde.serialize_function, model.functions.values()))
    return found, feed


def _random(rng: np.random.Generator, shape: Sequence[int], kind: ir.DataType) -> Array:
    """Draw random numbers of a type: real ones, and integers from 0 to 2, which may be indices."""
    dtype = kind.numpy()
    if kind == ir.DataType.BOOL:
        return rng.random(shape) > 0.5
    if dtype.kind in "iu":
        return rng.integers(0, 3, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def _fault(tried: Tried) -> str:
    """Say in what an order differs from what it is to give; empty: in nothing."""
    for slot, (want, have) in enumerate(zip(tried.expected, tried.got, strict=True)):
        if want.shape != have.shape:
            return f"output {slot} has shape {list(have.shape)}, not {list(want.shape)}"
        real = want.dtype.kind == "f"
        if not (np.allclose(have, want, equal_nan=True, **CLOSE) if real else np.array_equal(have, want)):
            return f"output {slot} is not the re-laid one"
    return ""


def _with_runtime(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    """Run a model in ONNX Runtime, with no optimization of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feed))]
