"""PyTorch as a source: its own exporter makes ONNX of a module or an exported program, where it is installed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.errors import MissingRuntimeError, ReadError, RelayoutError, nearest, shortened
from relayout.progress import say

MOST_SAID = 400  # characters of what PyTorch says of a module that it cannot export
ADVICE = "torch.export.draft_export(module, args) lists what stands in the way"


def is_pytorch(source: Any) -> bool:
    """Tell whether a source is a `torch.nn.Module` or a `torch.export.ExportedProgram`, without loading PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    kinds = (torch.nn.Module, *([torch.export.ExportedProgram] if hasattr(torch, "export") else []))
    return isinstance(source, kinds)


def exported(source: Any, args: Any, dynamic_shapes: Mapping[str, Any] | None) -> Any:
    """Return the ONNX model that PyTorch exports of a source; any other source as it is.

    Args:
        source: a module, which is exported as it runs in evaluation, or an exported program.
        args: what the module is called with: a tuple of tensors, one tensor, or a dictionary of arguments by name.
        dynamic_shapes: argument -> axis -> the name of its extent, which stays open: `{"image": {0: "batch"}}`.

    Raises:
        RelayoutError: arguments are missing, or given for a source that is no module.
        MissingRuntimeError: `onnxscript` is not installed, which PyTorch's exporter needs.
        ReadError: PyTorch cannot export the module.
    """
    if not is_pytorch(source):
        if args is not None or dynamic_shapes is not None:
            name = "args" if args is not None else "dynamic_shapes"
            advice = "; save a result with .save('model.onnx')" if isinstance(args, str) else _instead(source)
            raise RelayoutError(f"{name} is for a PyTorch module, and the source is {type(source).__name__}{advice}")
        return source
    import torch  # type: ignore[import-not-found, unused-ignore]

    say("exporting from PyTorch")
    is_module = isinstance(source, torch.nn.Module)
    if is_module and args is None:
        raise RelayoutError("a PyTorch module needs inputs to be exported with: args=(image,)")
    if not is_module and (args is not None or dynamic_shapes is not None):
        raise RelayoutError("an exported program has its arguments and open extents already: leave args out")
    positional, named = _arguments(args)
    names = _names(source, positional, named) if is_module else []
    shapes = None if dynamic_shapes is None else _shapes(names, dynamic_shapes)
    try:
        with _in_evaluation(source if is_module else None):
            program: Any = torch.onnx.export(
                source, positional, kwargs=named, dynamo=True, dynamic_shapes=shapes, verbose=False
            )
    except ImportError as error:
        if error.name in ("onnxscript", "onnx"):
            raise MissingRuntimeError(f"PyTorch's exporter needs {error.name}: pip install {error.name}") from None
        raise
    except Exception as error:  # the exporter has a dozen classes of errors, some of pages
        cause = error.__cause__ or error
        words = shortened(" ".join(str(cause).split()), MOST_SAID)
        raise ReadError(f"PyTorch cannot export this module: {type(cause).__name__}: {words}", hint=ADVICE) from error
    _name_outputs(program)
    return program.model


def _instead(source: object) -> str:
    """Return what to give in place of a source that is often taken for a module."""
    if isinstance(source, Mapping):
        return "; load a state_dict into your module, and give that"
    return "; load the module, and give that" if isinstance(source, str | PathLike) else ""


def _arguments(args: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call by position and by name; arrays are tensors."""
    import torch

    def tensor(value: Any) -> Any:
        return torch.as_tensor(value) if isinstance(value, np.ndarray) else value

    if args is None:
        return (), {}
    if isinstance(args, Mapping):
        return (), {name: tensor(value) for name, value in args.items()}
    return tuple(map(tensor, args if isinstance(args, tuple | list) else [args])), {}


def _names(module: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    """Return the names of a module's arguments that a call gives.

    Raises:
        RelayoutError: the module cannot be called so.
    """
    signature = inspect.signature(module.forward)
    try:
        return list(signature.bind(*positional, **named).arguments)
    except TypeError as error:
        raise RelayoutError(f"args: {error}; the module is called as forward{signature}") from None


def _shapes(names: Sequence[str], dynamic_shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the open extents of every argument of a call: PyTorch wants all of them listed."""
    for name in dynamic_shapes:
        if name not in names:
            raise RelayoutError(f"dynamic_shapes: the module has no argument {name!r}{nearest(name, names)}")
    return {name: dynamic_shapes.get(name) for name in names}


@contextmanager
def _in_evaluation(module: Any) -> Iterator[None]:
    """Let a module run as in evaluation: of a BatchNorm in training the file would compute with one batch's mean."""
    parts = [] if module is None else [part for part in module.modules() if part.training]
    if parts:
        module.eval()
    try:
        yield
    finally:
        for part in parts:
            part.training = True


def _name_outputs(program: Any) -> None:
    """Name outputs by the keys under which the module returns them, in place: the exporter names them by operators."""
    from torch.utils import _pytree  # type: ignore[import-not-found, unused-ignore]

    spec = program.exported_program.call_spec.out_spec
    outputs: Sequence[ir.Value] = program.model.graph.outputs
    if spec.num_leaves != len(outputs):
        return
    paths, _ = _pytree.tree_flatten_with_path(_pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
    known = {value.name for node in program.model.graph for value in node.outputs}
    known.update(value.name for value in (*program.model.graph.inputs, *program.model.graph.initializers.values()))
    for value, (path, _) in zip(outputs, paths, strict=True):
        keys = [str(getattr(step, "key", getattr(step, "name", getattr(step, "idx", "")))) for step in path]
        is_named = any(hasattr(step, "key") or hasattr(step, "name") for step in path)
        name = ".".join(keys)
        if is_named and name not in known:
            value.name = name
            known.add(name)
