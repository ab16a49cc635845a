"""What MediaPipe makes of small models with its custom operators, for which LiteRT has no kernel: recorded answers.

    python tests/formats/tflite/mediapipe_answers.py write FOLDER
    python tests/formats/tflite/mediapipe_answers.py ask FOLDER

The first writes the models and the images; the second runs where mediapipe is installed, and records. MediaPipe takes
an image, as bytes, from which its own calculator makes numbers between 0 and 1.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ANSWERS = Path(__file__).parents[2] / "data" / "mediapipe.json"
SAME, VALID = 1, 2
SHAPE = (7, 8, 3)
POINTS = SHAPE[0] * SHAPE[1]


def image(seed: int) -> Any:
    """Bytes that all differ, so that no greatest element is a matter of order."""
    return np.random.default_rng(seed).permutation(256)[: int(np.prod(SHAPE))].astype(np.uint8).reshape(SHAPE)


def followed(
    ends: Sequence[int], chosen: Sequence[int], scale: Sequence[float], target: float, size: Sequence[int]
) -> Any:
    """The image's colours are points; a crop of it around some of them, and points brought back from a crop."""
    from tflite_writing import Net

    net, (height, width) = Net(), size
    x = net.input((1, *SHAPE), low=0, high=1)
    points, spread = net.tensor((1, POINTS, 3)), net.tensor((1, POINTS, 3))
    net.op("RESHAPE", [x, net.const([1, POINTS, 3], "int32")], [points])
    net.op("MUL", [points, net.const([[[7, 6, 5]]])], [spread])
    matrix, crop = net.output((1, 4, 4)), net.output((1, height, width, 3))
    net.op("CUSTOM Landmarks2TransformMatrix", [spread], [matrix], version=2)
    sizes = {"output_height": height, "output_width": width}
    turned = {"left_rotation_idx": ends[0], "right_rotation_idx": ends[1], "target_rotation_radians": target}
    scaled = {"scale_x": scale[0], "scale_y": scale[1]}
    net.graph.operators[-1].customOptions = mapped(turned | scaled | sizes | {"subset_idxs": list(chosen)})
    net.op("CUSTOM TransformTensorBilinear", [x, matrix], [crop], version=2)
    net.graph.operators[-1].customOptions = mapped(sizes)
    net.op("CUSTOM TransformLandmarks", [spread, matrix], [net.output((1, POINTS, 3))], version=2)
    plane = net.tensor((1, POINTS * 3 // 2, 2))
    net.op("RESHAPE", [x, net.const([1, POINTS * 3 // 2, 2], "int32")], [plane])
    net.op("CUSTOM TransformLandmarks", [plane, matrix], [net.output((1, POINTS * 3 // 2, 2))], version=2)
    return net


def mapped(options: dict[str, Any]) -> list[int]:
    """A FlexBuffer map whose lists are typed vectors: the kernel takes no others."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in options.items():
            builder.Key(name)
            builder.TypedVectorFromElements(value) if isinstance(value, list) else builder.Add(value)
    return list(builder.Finish())


def packed(net: Any, *numbers: int) -> Any:
    """Give the last operator a struct of integers as options."""
    net.graph.operators[-1].customOptions = list(struct.pack(f"<{len(numbers)}i", *numbers))
    return net


def pooled() -> Any:
    """The greatest of each window of 2 x 4, and where it was, put back there."""
    from tflite_writing import Net

    net, out = Net(), (1, 3, 2, 3)
    x = net.input((1, *SHAPE), low=0, high=1)
    values, places = net.output(out), net.output(out)
    net.op("CUSTOM MaxPoolingWithArgmax2D", [x], [values, places])
    packed(net, VALID, 4, 2, 4, 2, 0, 0)
    net.op("CUSTOM MaxUnpooling2D", [values, places], [net.output((1, 6, 8, 3))])
    return packed(net, VALID, 4, 2, 4, 2, 0, 0)


def unconvolved(padding: int, stride: Sequence[int]) -> Any:
    from tflite_writing import Net

    rng, net, window = np.random.default_rng(1), Net(), (3, 4)
    over = [max(0, k - s) if padding == SAME else 0 for k, s in zip(window, stride, strict=True)]
    out = [s * (e - 1) + k - o for e, k, s, o in zip(SHAPE, window, stride, over, strict=False)]
    kernel, bias = net.const(rng.normal(size=(2, *window, 3))), net.const(rng.normal(size=2))
    x = net.input((1, *SHAPE), low=0, high=1)
    net.op("CUSTOM Convolution2DTransposeBias", [x, kernel, bias], [net.output((1, *out, 2))])
    return packed(net, padding, stride[1], stride[0])


NETS: dict[str, Callable[[], Any]] = {
    "inside": lambda: followed((3, 17), [3, 17, 20, 41, 6], (0.4, 0.5), 0.0, (4, 5)),
    "turned": lambda: followed((9, 2), range(12), (0.7, 0.6), 1.1, (5, 3)),
    "beyond": lambda: followed((3, 17), range(30), (2.5, 3.0), -0.4, (6, 6)),
    "no way": lambda: followed((8, 8), [1, 5, 30], (1.0, 1.0), 0.7, (3, 3)),
    "pooled": pooled,
    "same": lambda: unconvolved(SAME, (2, 1)),
    "valid": lambda: unconvolved(VALID, (1, 3)),
}


def answers() -> Iterator[tuple[Any, Any, list[Any]]]:
    """Model, input, and MediaPipe's results in one dimension each."""
    recorded = json.loads(ANSWERS.read_text(encoding="utf-8"))["answers"]
    assert list(recorded) == list(NETS)
    for seed, (name, made) in enumerate(NETS.items()):
        given = image(seed).astype(np.float32)[None] / 255
        yield made(), given, [np.array(values, np.float32) for values in recorded[name]]


def ask(model: Path, pixels: Any, count: int) -> list[list[float]]:
    """One model on one image: as many results as it has, flat."""
    import mediapipe as mp  # type: ignore[import-not-found]

    each = range(count)
    text = f"""
    input_stream: "image"
    node {{ calculator: "ImageToTensorCalculator" input_stream: "IMAGE:image" output_stream: "TENSORS:in" options: {{
      [mediapipe.ImageToTensorCalculatorOptions.ext] {{
        output_tensor_width: {pixels.shape[1]} output_tensor_height: {pixels.shape[0]}
        output_tensor_float_range {{ min: 0 max: 1 }} }} }} }}
    node {{ calculator: "TfLiteCustomOpResolverCalculator" output_side_packet: "OP_RESOLVER:resolver" }}
    node {{ calculator: "InferenceCalculator" input_side_packet: "OP_RESOLVER:resolver"
      input_stream: "TENSORS:in" output_stream: "TENSORS:out" options: {{
        [mediapipe.InferenceCalculatorOptions.ext] {{ model_path: "{model}" delegate {{ tflite {{}} }} }} }} }}
    """
    text += 'node { calculator: "SplitTensorVectorCalculator" input_stream: "out"\n'
    text += "".join(f'output_stream: "tensor{i}"\n' for i in each)
    ranges = "".join(f"ranges: {{ begin: {i} end: {i + 1} }}\n" for i in each)
    text += f"options: {{ [mediapipe.SplitVectorCalculatorOptions.ext] {{ {ranges} }} }} }}\n"
    for i in each:
        text += f'output_stream: "floats{i}"\nnode {{ calculator: "TensorsToFloatsCalculator"\n'
        text += f'input_stream: "TENSORS:tensor{i}" output_stream: "FLOATS:floats{i}" }}\n'
    graph, found = mp.CalculatorGraph(graph_config=text), {}
    for i in each:
        graph.observe_output_stream(
            f"floats{i}", lambda name, packet: found.update({name: mp.packet_getter.get_float_list(packet)})
        )
    graph.start_run()
    packet = mp.packet_creator.create_image_frame(image_format=mp.ImageFormat.SRGB, data=pixels)
    graph.add_packet_to_input_stream("image", packet.at(0))
    graph.close_all_packet_sources()
    graph.wait_until_done()
    return [list(found[f"floats{i}"]) for i in each]


def main(what: str, folder: Path) -> None:
    for seed, name in enumerate(NETS) if what == "write" else ():
        net = NETS[name]()
        (folder / f"{name}.tflite").write_bytes(net.bytes())
        np.savez(folder / f"{name}.npz", image=image(seed), count=len(net.graph.outputs))
    if what == "ask":
        import mediapipe as mp

        found = {}
        for name in NETS:
            with np.load(folder / f"{name}.npz") as given:
                found[name] = ask(folder / f"{name}.tflite", given["image"], int(given["count"]))
        rows = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in found.items())
        body = ",\n".join(rows)
        ANSWERS.write_text(f'{{"mediapipe": "{mp.__version__}", "answers": {{\n{body}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
