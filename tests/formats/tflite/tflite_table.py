"""What the operators' cases show of each TensorFlow Lite operator. Run as a program, it writes what the package ships:

    python tests/formats/tflite/tflite_table.py

writes `src/relayout/formats/tflite/exercised.json` and the two tables in `docs/`, and which module registers what to
`src/relayout/formats/tflite/importing/operators/modules.json`. Tests hold all four to the cases and the registry.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent), str(ROOT / "tests"), str(ROOT / "bench")]

from ai_edge_litert import schema_py_generated as schema  # noqa: E402
from tflite_cases import WITHOUT_KERNEL, every  # noqa: E402
from tflite_running import read  # noqa: E402
from tflite_writing import Net  # noqa: E402

from registered_modules import modules  # noqa: E402
from relayout.formats.tflite.importing.operation import Operation  # noqa: E402
from relayout.formats.tflite.importing.registry import Unsupported, entries  # noqa: E402

EXERCISED = ROOT / "src" / "relayout" / "formats" / "tflite" / "exercised.json"
MODULES = EXERCISED.parent / "importing" / "operators" / "modules.json"
DOCUMENTS = {"onnx": ROOT / "docs" / "operators-onnx.md", "tflite": ROOT / "docs" / "operators-tflite.md"}

NAMES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
TYPES = {v: k.lower() for k, v in vars(schema.TensorType).items() if isinstance(v, int)}
HELPERS = {"Cast", "DequantizeLinear", "Identity", "QuantizeLinear", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators around the ones that compute; named only where there are no others."""


def used(net: Net) -> Iterator[tuple[str, int, str]]:
    """(operator, version, number format) of every operator in a model, those of bodies too."""
    for graph in net.model.subgraphs:
        for operator in graph.operators:
            code = net.model.operatorCodes[operator.opcodeIndex]
            name = f"CUSTOM {code.customCode}" if code.customCode else NAMES[code.builtinCode]
            yield name, code.version, number_format(net, graph, operator)


def number_format(net: Net, graph: Any, operator: Any) -> str:
    """The type of the data, `int8 q` where it has a scale, and that of weights where it is another."""
    tensors = [graph.tensors[i] for i in operator.inputs if i >= 0]
    constant = [t for t in tensors if t.buffer and net.model.buffers[t.buffer].data is not None]
    moving = [t for t in tensors if not any(t is c for c in constant)]
    results = [graph.tensors[i] for i in operator.outputs]
    data = (moving or results or tensors)[:1]
    if not data:
        return "none"
    weights = [
        t for t in constant if t.quantization is not None and t.type not in (data[0].type, schema.TensorType.INT32)
    ]
    wide = [kind(t) for t in weights[:1] if t.type != schema.TensorType.INT64]
    return " × ".join([kind(data[0]), *wide])


def kind(tensor: Any) -> str:
    return TYPES[tensor.type] + (" q" if tensor.quantization is not None else "")


def exercised() -> dict[str, dict[str, Any]]:
    """Operator -> what its cases show; rows in the order of the registry."""
    found: dict[str, dict[str, Any]] = {
        name: {"litert": set(), "numpy": set(), "versions": set()} for name in entries()
    }
    onnx: dict[str, Counter[str]] = {name: Counter() for name in entries()}
    for net in every().values():
        for name, version, numbers in used(net):
            found[name]["numpy" if net.expected else "litert"].add(numbers)
            found[name]["versions"].add(version)
        for node in read(net.bytes()).graph.all_nodes():
            name = node.metadata_props.get("relayout.source", "").partition(" subgraphs[")[0]
            if name in onnx:
                onnx[name][f"{node.domain}:{node.op_type}" if node.domain else node.op_type] += 1
    for name, version in WITHOUT_KERNEL.items():
        found[name]["numpy"].add("float32")
        found[name]["versions"].add(version)
    return {
        name: {
            **{key: sorted(values) for key, values in row.items()},
            "onnx": sorted({op for op in onnx[name] if op not in HELPERS or op.upper() == name} or onnx[name]),
            "refused": sorted(dict.fromkeys(reasons(entries()[name].translate, set()))),
        }
        for name, row in found.items()
    }


def reasons(function: Callable[..., Any], seen: set[Any]) -> Iterator[str]:
    """The texts of every `raise Unsupported(...)` in a translation and in the functions of operators that it calls.

    What `op.fixed` wants known is refused, too, for the reason that it is given.
    """
    if function in seen:
        return
    seen.add(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            scope |= {each.asname or each.name: getattr(module, each.name) for each in node.names}
    stated = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr == Operation.fixed.__name__:
            reason = node.args[1]
            yield words(stated[reason.id] if isinstance(reason, ast.Name) else reason)
        called = called_by(node.func, scope)
        if called is Unsupported:
            yield words(node.args[0])
        elif inspect.isfunction(called) and called.__module__.startswith("relayout.formats.tflite.importing.operators"):
            yield from reasons(called, seen)


def called_by(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """The function that a call names, by itself or as a module's; None of any other."""
    if isinstance(node, ast.Attribute) and inspect.ismodule(module := called_by(node.value, scope)):
        return getattr(module, node.attr)
    return scope.get(node.id) if isinstance(node, ast.Name) else None


def words(node: ast.expr) -> str:
    """A message as it stands in the source, with an ellipsis for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return "…"


def text() -> str:
    """The content of `exercised.json`: a line for each operator."""
    lines = [f"{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in exercised().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    MODULES.write_text(modules("importing"), encoding="utf-8")
    EXERCISED.write_text(text(), encoding="utf-8")
    from tables import write_page

    from relayout.reports import coverage

    for name, path in DOCUMENTS.items():
        write_page(path, coverage.markdown(name))
