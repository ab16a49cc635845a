"""A command is a short process: what it loads, and how often it looks for garbage, is most of a small model's time.

As a library relayout leaves both alone.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader

_DEFERRED = """
    sympy onnx_ir._symbolic_shapes google.protobuf.json_format google.protobuf.text_format
    google.protobuf.internal.python_message concurrent.futures onnx.compose onnx.gen_proto tarfile socket zipfile
    onnx_ir.schemas onnx.parser onnx.printer onnx.version_converter packaging.version bz2 lzma
    numpy._core._add_newdocs numpy._core._add_newdocs_scalars
"""
DEFERRED = tuple(_DEFERRED.split())
"""Loaded when something of them is first used. onnx-ir imports sympy for arithmetic with symbolic extents, of which a
conversion does none; sympy takes as long to load as numpy and onnx together. The second is onnx-ir's module that takes
functions out of sympy as it is imported. The next are what click, onnx, onnx-ir and the standard library import for
jobs that no command has: 1 MB. The last two are the docstrings of NumPy's C functions. A name that no longer exists is
never asked for."""

YOUNG = 200_000
"""Objects that are made before the garbage collector looks at them. Python's own 700 (2,000) cost a third of a small
conversion, since nearly all that a command makes is alive until its end."""

THREADS = "OPENBLAS_NUM_THREADS"
"""How many threads NumPy's linear algebra starts as it is loaded: else one a core, which takes half of that time. What
a command computes with NumPy are constants, and runtimes have threads of their own."""


METADATA = "importlib.metadata"
"""As onnx loads, it asks this module for its own version. The module loads what reads e-mail to answer."""


class _VersionsFirst(importlib.util.LazyLoader):
    """Loads the module of packages' metadata when anything but a version is asked for, into the same module."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self.whole = loader

    def exec_module(self, module: ModuleType) -> None:
        """Give the module one function, which finds a version in the name of the folder that pip has for a package."""

        def any_other(name: str) -> Any:
            if vars(module).pop("__getattr__", None) is not None:
                self.whole.exec_module(module)
            return getattr(module, name)

        def version(package: str) -> str:
            head, tail = f"{package}-", ".dist-info"
            for folder in filter(os.path.isdir, sys.path):
                with suppress(OSError):  # a folder that may not be read
                    matching_names = [
                        name for name in os.listdir(folder) if name.startswith(head) and name.endswith(tail)
                    ]
                    if len(matching_names) == 1:
                        return matching_names[0][len(head) : -len(tail)]
            return str(any_other("version")(package))

        vars(module).update(version=version, __getattr__=any_other)


class _Deferred:
    """Finds the modules of `DEFERRED` where they would be found, with the standard library's loader that waits."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in (METADATA, *DEFERRED):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            later = _VersionsFirst if name == METADATA else importlib.util.LazyLoader
            spec.loader = later(spec.loader)
        return spec


@contextmanager
def deferred_imports() -> Iterator[None]:
    """Within it, modules of `DEFERRED` load when they are used."""
    sys.meta_path.insert(0, _Deferred)
    try:
        yield
    finally:
        sys.meta_path.remove(_Deferred)


@contextmanager
def short_process() -> Iterator[None]:
    """Within it, modules of `DEFERRED` load when they are used, NumPy has one thread unless the user says how many, and
    the garbage collector runs seldom.

    What is alive when the process ends is not looked through again. Nor does onnx-ir warn of values that an invalid
    model leaves open: the command says in one line what is wrong.
    """
    before, enabled = gc.get_threshold(), gc.isenabled()
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    said = THREADS in os.environ
    os.environ.setdefault(THREADS, "1")
    gc.set_threshold(YOUNG, *before[1:])
    atexit.register(gc.freeze)
    try:
        with deferred_imports():
            yield
    finally:
        if not said:
            os.environ.pop(THREADS, None)
        if not gc.get_freeze_count():
            # All that is alive is old at once. Else it would be looked through here, as far more than usual is young.
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*before)
        logger.setLevel(level)
        if enabled:
            gc.enable()


def one_job() -> None:
    """To the end of this process, which does one job and has little to throw away, do not look for garbage at all."""
    gc.disable()
