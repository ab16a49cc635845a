"""Every operator that the schema names is translated, or there is a reason why not."""

from __future__ import annotations

import pytest
from tflite_cases_formats import four_bit_kernels
from tflite_cases_spatial import conv

from relayout.errors import RelayoutError, UnsupportedError
from relayout.formats.tflite import read
from relayout.formats.tflite.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.impossible import REASONS, untranslated
from relayout.formats.tflite.registry import entries

EXPECTED = {
    *("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "STABLEHLO_CASE", "STABLEHLO_WHILE"),
}
"""Under way; whoever registers one of them may take it off this list."""


def test_every_builtin_is_translated_or_has_a_reason() -> None:
    without = untranslated()
    assert set(without) | set(entries()) >= set(BUILTIN_OPERATORS)
    assert {name for name, reason in without.items() if reason == "not yet"} <= EXPECTED


def test_no_reason_is_out_of_date() -> None:
    assert set(REASONS) <= set(BUILTIN_OPERATORS)
    assert not set(REASONS) & set(entries())


def opset(content: bytes, **more: bool) -> int:
    return read(content, **more).opset_imports[""]


def test_the_lowest_opset_that_is_enough() -> None:
    assert opset(conv().bytes()) == opset(conv("int8", per_channel=True).bytes()) == 20
    assert opset(conv("int16").bytes()) == opset(next(four_bit_kernels()).bytes()) == 21
    assert opset(conv("int16").bytes(), quant="float") == 20
    for number in (18, 23):
        assert read(conv().bytes(), opset=number).opset_imports[""] == number
    with pytest.raises(UnsupportedError, match="INT16 needs opset 21"):
        read(conv("int16").bytes(), opset=20)
    with pytest.raises(RelayoutError, match="opset 17"):
        read(conv().bytes(), opset=17)
