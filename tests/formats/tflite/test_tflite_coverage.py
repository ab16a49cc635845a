"""Every operator that the schema names is translated, or there is a reason why not."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tflite_table
from tables import files_of
from tflite_cases import WITHOUT_KERNEL
from tflite_cases_formats import four_bit_kernels
from tflite_cases_spatial import conv
from tflite_writing import Net, options

from registered_modules import modules
from relayout.errors import RelayoutError, UnsupportedError
from relayout.formats.tflite import read
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.importing.program import Choices
from relayout.formats.tflite.importing.registry import entries
from relayout.formats.tflite.importing.tensors import Quant
from relayout.reports import coverage
from relayout.reports.coverage import REASONS, untranslated


def test_every_builtin_is_translated_or_has_a_reason() -> None:
    without = untranslated()
    assert set(without) | set(entries()) >= set(BUILTIN_OPERATORS)
    assert "not yet" not in without.values()


def test_no_reason_is_out_of_date() -> None:
    assert set(REASONS) <= set(BUILTIN_OPERATORS)
    assert not set(REASONS) & set(entries())


def opset(content: bytes, quant: Quant = "qdq") -> int:
    return read(content, Choices(quant=quant)).opset_imports[""]


def test_the_lowest_opset_that_is_enough() -> None:
    assert opset(conv().bytes()) == opset(conv("int8", per_channel=True).bytes()) == 18
    assert opset(conv("int16").bytes()) == opset(next(four_bit_kernels()).bytes()) == 21
    assert opset(conv("int16").bytes(), quant="float") == 18
    net = Net()
    net.op("GELU", [net.input((2, 3))], [net.output((2, 3))], options("GeluOptions", approximate=True))
    assert opset(net.bytes()) == 20
    for number in (18, 23):
        assert read(conv().bytes(), Choices(opset=number)).opset_imports[""] == number
    with pytest.raises(UnsupportedError, match="INT16 needs opset 21"):
        read(conv("int16").bytes(), Choices(opset=20))
    with pytest.raises(RelayoutError, match="opset 17"):
        read(conv().bytes(), Choices(opset=17))


# The table of `relayout ops`. Its claims are what the cases show, and `test_tflite_operators` runs every case.


def test_the_table_claims_what_the_cases_show_and_no_more() -> None:
    hint = "run python tests/formats/tflite/tflite_table.py"
    assert tflite_table.EXERCISED.read_text(encoding="utf-8") == tflite_table.text(), hint
    for part, path in tflite_table.DOCUMENTS.items():
        files = files_of(path, coverage.markdown(part))
        assert {each: each.read_text(encoding="utf-8") for each in files} == files, hint
    assert tflite_table.MODULES.read_text(encoding="utf-8") == modules("importing"), hint


def test_an_operator_that_the_list_of_modules_lacks_is_found_in_all_of_them() -> None:
    """In a process of its own: here all of them are loaded."""
    assert alone("r.modules_of = lambda _: {}; print(r.entry_of('ABS').name)") == "ABS"


def test_a_translation_for_complex_numbers_is_found_though_its_module_is_another() -> None:
    assert alone("e = r.entry_of('TRANSPOSE'); print(e.of_complex is e.translate)") == "False"


def alone(code: str) -> str:
    """What a process of its own prints, in which no operator is loaded."""
    command = [sys.executable, "-c", f"from relayout.formats.tflite.importing import registry as r; {code}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_row_was_exercised() -> None:
    rows = {row["operator"]: row for row in coverage.tables("tflite")["tflite"]}
    assert list(rows) == list(entries())
    assert [name for name, row in rows.items() if not row["numbers"] and not row["numpy"]] == []
    assert [name for name, row in rows.items() if not row["versions"] or not row["becomes"]] == []
    assert {name for name, row in rows.items() if not row["ONNX"]} == RESOURCES | CONSTANTS | WITHOUT_KERNEL.keys()
    assert all(row["reason"] for row in coverage.tables("tflite")["tflite_refused"])


RESOURCES = {"ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE", "HASHTABLE_IMPORT", "VAR_HANDLE"}
"""Those that write no node: what they act upon is known while the graph is written."""

CONSTANTS = {"DENSIFY", "HASHTABLE_SIZE", "RANK", "SHAPE"}
"""Those whose results are known then."""


def test_number_formats_are_those_of_the_data() -> None:
    """What the table calls a format, on models of which it is known."""
    formats = [{numbers for _, _, numbers in tflite_table.used(net)} for net in (conv(), conv("int16"))]
    assert formats == [{"float32"}, {"int16 q × int8 q"}]
    assert {numbers for _, _, numbers in tflite_table.used(next(four_bit_kernels()))} == {"int8 q × int4 q"}


def test_reasons_are_read_from_the_source() -> None:
    found = set(tflite_table.reasons(entries()["STABLEHLO_SORT"].translate, set()))
    assert {"a comparator of several operators", "a comparator …"} <= found
