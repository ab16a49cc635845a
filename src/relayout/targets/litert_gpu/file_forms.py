"""What is done to the operators of a `.tflite` for LiteRT's GPU accelerator, and which of them it does not take."""

from __future__ import annotations

from relayout.formats.tflite.exporting.draft import Draft
from relayout.formats.tflite.exporting.file_forms import FileForms
from relayout.targets.litert_gpu.forms import FORMS, GENERAL
from relayout.targets.litert_gpu.narrow_integers import narrow_integers
from relayout.targets.litert_gpu.operator_form import reason_of
from relayout.targets.litert_gpu.rewriting import rewrite
from relayout.targets.litert_gpu.separate_outputs import separate_outputs


def _rewrite(draft: Draft) -> None:
    """Write the operators of a graph in forms that the accelerator takes, in place."""
    narrow_integers(draft)
    rewrite(draft, FORMS, GENERAL)


def file_forms() -> FileForms:
    """Return the forms that the accelerator takes."""
    return FileForms(_rewrite, separate_outputs, reason_of)
