"""LiteRT's GPU accelerator, which takes a `.tflite` as a whole or not at all.

Forms: the accelerator of ai-edge-litert 2.3 itself (WebGPU, float32), asked about files of one operator each
(`bench/gpu_table.py`, held by `tests/targets/test_litert_gpu.py`). OpenCL, as many phones have it, differs in places.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from relayout.targets.litert.decompositions import DECOMPOSITIONS
from relayout.targets.litert.table import TARGET as LITERT

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.file_forms import FileForms


def _file_forms() -> FileForms:
    from relayout.targets.litert_gpu.file_forms import file_forms

    return file_forms()


TARGET = replace(
    LITERT,
    name="litert-gpu",
    line="LiteRT's GPU accelerator: whole networks in float32 or float16, at most four axes, integers of 32 bits",
    file_forms=_file_forms,
    expansions=DECOMPOSITIONS,
)
ALIASES = {"gpu": "litert-gpu"}
