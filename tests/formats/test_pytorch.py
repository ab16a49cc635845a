"""PyTorch as a source: a module or an exported program, where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relayout
from relayout.errors import MissingRuntimeError, ReadError, RelayoutError
from relayout.formats.pytorch import is_pytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


class Network(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A convolution with statistics, a classifier, and results with names."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.classes = torch.nn.Linear(8, 5)

    def forward(self, image: Any) -> dict[str, Any]:
        features = self.norm(self.convolution(image)).relu()
        return {"features": features, "logits": self.classes(features.mean((2, 3)))}


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(0)
    return Network()


IMAGE = torch.rand(2, 3, 12, 10)


def test_a_module_becomes_a_verified_tflite_with_names(network: Any) -> None:
    assert network.training
    result = relayout.convert(network, args=(IMAGE,), format="tflite", dynamic_shapes={"image": {0: "batch"}})
    assert network.training, "what is given stays as it was"
    graph = result.model.graph
    assert [(value.name, str(value.shape)) for value in graph.inputs] == [("image", "[batch,3,12,10]")]
    assert [value.name for value in graph.outputs] == ["features", "logits"]
    report = relayout.verify(network, result, args=(IMAGE,), inputs={"image": IMAGE.numpy()})
    assert report.ok


def test_a_result_computes_what_the_module_does(network: Any) -> None:
    from running import run

    result = relayout.optimize(network, IMAGE)
    outputs = run(result.proto, {"image": IMAGE.numpy()})
    with torch.no_grad():
        expected = network.eval()(IMAGE)
    for output, name in zip(outputs, ("features", "logits"), strict=True):
        np.testing.assert_allclose(output, expected[name].numpy(), rtol=1e-4, atol=1e-5)


def test_an_exported_program(network: Any) -> None:
    program = torch.export.export(network.eval(), (IMAGE,))
    assert is_pytorch(program)
    result = relayout.convert(program, format="tflite")
    assert [value.name for value in result.model.graph.outputs] == ["features", "logits"]
    with pytest.raises(RelayoutError, match="has its arguments and open extents already"):
        relayout.convert(program, (IMAGE,))


def test_slips(network: Any) -> None:
    for arguments, options, said in [
        ((network,), {}, r"a PyTorch module needs inputs to be exported with: args=\(image,\)"),
        ((network, (IMAGE,)), {"dynamic_shapes": {"imge": {0: "n"}}}, "no argument 'imge'; did you mean 'image'"),
        (("m.onnx", "m.tflite"), {}, r"args is for a PyTorch module, and the source is str; save a result with"),
        (("m.pt", (IMAGE,)), {}, r"and the source is str; load the module, and give that"),
        (({"weight": IMAGE}, (IMAGE,)), {}, r"and the source is dict; load a state_dict into your module, and give"),
        ((network, ()), {}, r"args: missing a required argument: 'image'; the module is called as forward\(image"),
        ((network, (IMAGE, IMAGE)), {}, "args: too many positional arguments; the module is called as"),
        (("m.onnx",), {"dynamic_shapes": {}}, "dynamic_shapes is for a PyTorch module"),
    ]:
        with pytest.raises(RelayoutError, match=said):
            relayout.convert(*arguments, **options)


def test_arrays_are_tensors(network: Any) -> None:
    for args in ((IMAGE.numpy(),), {"image": IMAGE.numpy()}):
        assert relayout.convert(network, args).proto == relayout.convert(network, (IMAGE,)).proto


def test_what_cannot_be_exported_is_one_line() -> None:
    class Branches(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(ReadError, match="PyTorch cannot export this module: ") as error:
        relayout.convert(Branches(), (torch.rand(3),))
    assert "\n" not in str(error.value)


def test_a_missing_exporter_is_named(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(MissingRuntimeError, match="PyTorch's exporter needs onnxscript: pip install onnxscript"):
        relayout.convert(network, (IMAGE,))


class Dropping(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A Dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, image: Any) -> Any:
        return self.drop(image) + 1


@pytest.mark.parametrize("result_format", ["onnx", "tflite"])
def test_a_program_that_was_exported_in_training_is_said_to_be_random(result_format: Any) -> None:
    program = torch.export.export(Dropping().train(), (IMAGE,))
    notes = relayout.convert(program, format=result_format).report.notes
    assert [note for note in notes if "1 Dropout" in note and ".eval()" in note]
    module = relayout.convert(Dropping().train(), (IMAGE,), format=result_format)
    assert not [note for note in module.report.notes if "random" in note]
