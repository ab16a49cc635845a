"""Write networks of Ultralytics, YOLO and RT-DETR of all tasks, as its users get them: ONNX and LiteRT files.

    python3.11 -m venv yolo
    yolo/bin/pip install torch==2.13.0 torchvision==0.28.0 ultralytics==8.4.190 onnxslim==0.1.98 onnxscript==0.7.2
    yolo/bin/pip install onnx==1.23.2 onnxruntime==1.32.0 litert-torch==0.10.0 ai-edge-litert==2.3.0
    yolo/bin/python bench/make_ultralytics.py OUT [NAME ...]

The files are `NETWORK.WAY.onnx`, by the ways of `WAYS` and `LATER`, and `NETWORK.FORMAT.tflite`; `NETWORKS` says which.
Networks are built from the library's own descriptions, the smallest of each family. Weights are random, seeds are
fixed, and normalizations have the statistics of random images. An image is higher than it is wide. What an exporter
refuses is named, and left out; a file that is there is kept. `make_onnx2tf.py` makes .tflite files of the ONNX files.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["YOLO_OFFLINE"] = "true"
os.environ["YOLO_AUTOINSTALL"] = "false"
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())

SEED = 5
SIZE = [192, 128]
IMAGES = 4
WEIGHTED = ("Conv", "Gemm", "MatMul")
"""What the library quantizes; the rest stays float."""
WAYS: dict[str, dict[str, Any]] = {
    "slim": {"simplify": True},
    "raw": {"simplify": False},
    "opset12": {"simplify": False, "opset": 12},
    "open": {"simplify": True, "dynamic": True},
    "open_raw": {"simplify": False, "dynamic": True},
    "nms": {"simplify": True, "nms": True},
    "end": {"simplify": True, "nms": False},
    "half": {"simplify": True, "quantize": 16},
}
"""Way -> options of the library's own export. `end` is its end-to-end head."""
LATER = ("dynamo", "layers8", "qdq")
"""PyTorch's newer exporter; quantized as the library does it, and whole."""
FORMATS = {"float32": "", "dynamic": "dynamic_wi8_afp32", "int8": "static_wi8_ai8"}

ALL = (*WAYS, *LATER, *FORMATS)
FEW = ("slim", "open_raw", "layers8", "float32", "int8")
NETWORKS: dict[str, tuple[str, ...]] = {
    "yolov3-tiny": FEW,
    "yolov5n": FEW,
    "yolov5n-p6": FEW,
    "yolov6n": FEW,
    "yolov8n": ALL,
    "yolov8n-cls": FEW,
    "yolov8n-ghost": FEW,
    "yolov8n-obb": FEW,
    "yolov8n-p2": FEW,
    "yolov8n-pose": (*FEW, "nms"),
    "yolov8n-seg": (*FEW, "nms", "qdq"),
    "yolov8s-worldv2": FEW,
    "yolov9t": FEW,
    "yolov10n": (*FEW, "end"),
    "yolo11n": ALL,
    "yolo11n-cls": (*FEW, "qdq", "dynamo"),
    "yolo11n-obb": (*FEW, "nms", "dynamo"),
    "yolo11n-pose": (*FEW, "dynamo"),
    "yolo11n-seg": (*FEW, "dynamo"),
    "yolo12n": ALL,
    "yolo12n-seg": FEW,
    "yolo26n": ALL,
    "yolo26n-cls": FEW,
    "yolo26n-depth": (*FEW, "raw"),
    "yolo26n-obb": (*FEW, "end"),
    "yolo26n-pose": (*FEW, "end"),
    "yolo26n-seg": (*FEW, "end"),
    "yolo26n-sem": (*FEW, "raw"),
    "yoloe-11s-seg": FEW,
    "yolov8n-rtdetr": ("slim", "raw", "open_raw", "half", "dynamo", "layers8", "qdq", "float32", "dynamic"),
    "rtdetr-l": ("slim", "float32"),
}


def lively(network: Any) -> None:
    """Weights that keep the size of what they are fed, and statistics of what they make of random images."""
    import torch

    torch.manual_seed(SEED)
    norms = [module for module in network.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear) and module.weight.requires_grad:
            torch.nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                torch.nn.init.normal_(module.bias, 0, 0.3)
    for norm in norms:
        torch.nn.init.uniform_(norm.weight, 0.7, 1.3)
        torch.nn.init.normal_(norm.bias, 0, 0.3)
        norm.reset_running_stats()
        norm.momentum = None
    network.eval()
    for norm in norms:
        norm.train()
    with torch.no_grad():
        for _ in range(3):
            network(torch.rand(IMAGES, 3, *SIZE))
    network.eval()


def built(name: str) -> Any:
    import torch
    from ultralytics import RTDETR, YOLO

    torch.manual_seed(SEED)
    model = (RTDETR if "rtdetr" in name else YOLO)(f"{name}.yaml")
    lively(model.model)
    return model


def inputs(seed: int) -> dict[str, Any]:
    import numpy as np

    return {"images": np.random.default_rng(seed).random((1, 3, *SIZE), np.float32)}


def quantized(source: Path, path: Path, whole: bool) -> None:
    import onnx
    from onnxruntime import quantization

    class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [inputs(seed) for seed in range(IMAGES)]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    kept = [node.name for node in onnx.load(source).graph.node if node.op_type not in WEIGHTED]
    quantization.quantize_static(source, path, Images(), nodes_to_exclude=[] if whole else kept)


def dynamo(model: Any, path: Path) -> None:
    import torch

    network = model.model.eval().float().fuse(verbose=False)
    for module in network.modules():
        if hasattr(module, "export"):
            module.export = True
    given = torch.rand(1, 3, *SIZE)
    network(given)
    made = torch.onnx.export(network, (given,), input_names=["images"], dynamo=True, verbose=False)
    made.save(str(path))


def exported(name: str, path: Path, **options: Any) -> None:
    """Let the library write the file in its own place, and take it from there."""
    with tempfile.TemporaryDirectory() as scratch:
        here = Path.cwd()
        os.chdir(scratch)
        try:
            shutil.move(built(name).export(imgsz=SIZE, **options), path)
        finally:
            os.chdir(here)


def write(name: str, way: str, path: Path, out: Path) -> None:
    if way in WAYS:
        exported(name, path, format="onnx", **WAYS[way])
    elif way == "dynamo":
        dynamo(built(name), path)
    elif way in LATER:
        quantized(out / f"{name}.slim.onnx", path, way == "qdq")
    elif way == "float32":
        exported(name, path, format="litert")
    else:
        from make_litert_torch import quantized as by_recipe

        by_recipe(out / f"{name}.float32.tflite", path, FORMATS[way])


def main() -> None:
    out, names = Path(sys.argv[1]).absolute(), sys.argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    for name in names or NETWORKS:
        for way in sorted(NETWORKS[name], key=ALL.index):
            path = out / f"{name}.{way}.{'tflite' if way in FORMATS else 'onnx'}"
            why = ""
            try:
                if not path.exists():
                    write(name, way, path, out)
            except Exception as error:
                why = f": {type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error) else ''}"
            print(f"{path.name}{why}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
