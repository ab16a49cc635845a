"""Transposes in the bodies of functions of layouts: counted, said in the headline, and run by ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnx.inliner
import onnxruntime
import pytest

import relayout
from relayout.reports.tables import summary
from text_form import floats, model

NOTE = "Transposes in bodies of functions, which a runtime without kernels for relayout.nhwc:Conv cancels or runs: 4"
FOR_BACKENDS = " in functions, for which a backend has kernels)"
FOR_BACKENDS = " in functions, for which a backend has kernels)"
INLINED = "Transposes from bodies of functions, which the runtime cancels or runs: 4"


def network() -> onnx.ModelProto:
    """A normalization over channels between two convolutions."""
    return model(
        """g (float[2,3,8,10] x) => (float[2,5,8,10] y) {
            a = Conv(x, u)
            t = Transpose<perm=[0,2,3,1]>(a)
            n = LayerNormalization<axis=-1>(t, s, b)
            r = Transpose<perm=[0,3,1,2]>(n)
            y = Conv(r, v)
        }""",
        u=floats(4, 3, 1, 1),
        v=floats(5, 4, 1, 1, seed=1),
        s=floats(4),
        b=floats(4, seed=3),
    )


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize(
    ("io", "said"),
    [
        ("convert", f"no Transposes, proved minimal (4{FOR_BACKENDS}"),
        ("keep", f"2 Transposes, 5.12 KB per inference, proved minimal (4 more{FOR_BACKENDS}"),
    ],
)
def test_the_headline_counts_them(io: str, said: str, inline: bool) -> None:
    result = relayout.convert(network(), to="NHWC", io=io, inline=inline)
    report = result.report
    assert summary(report) == said
    assert report.notes == ((INLINED if inline else NOTE),)
    count = Counter(node.op_type for node in onnx.inliner.inline_local_functions(result.proto).graph.node)["Transpose"]
    assert report.transposes + report.in_functions == count


def test_the_headline_of_a_result_without_functions_is_as_it_was() -> None:
    result = relayout.convert(network(), to="NHWC", format="tflite", io="convert")
    assert summary(result.report) == "no Transposes, proved minimal"
    assert summary(relayout.optimize(network()).report).startswith("2 Transposes, 5.12 KB per inference, proved")


def test_onnx_runtime_does_not_cancel_all_of_them(tmp_path: Path) -> None:
    def count(source: onnx.ModelProto) -> int:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return sum(node.op_type == "Transpose" for node in onnx.load(tmp_path / "optimized.onnx").graph.node)

    called = count(relayout.convert(network(), to="NHWC", io="convert").proto)
    assert count(network()) < called <= 4


def test_a_transpose_that_stays_says_which_kernels_a_backend_would_need() -> None:
    reasons = [row.reason for row in relayout.optimize(network()).report.remaining]
    kinds = ("Conv or LayerNormalization", "LayerNormalization or Conv")
    said = [f"Only a backend with a kernel for {each} in the other's layout can do without it" for each in kinds]
    assert reasons
    assert all(any(each in text for each in said) for text in reasons)
