"""Write Keras networks with random weights as .tflite files, each in five number formats.

    python -m venv tf && tf/bin/pip install tensorflow-cpu==2.19.0 tf_keras==2.19.0
    tf/bin/python bench/make_keras.py OUT_DIRECTORY [--tiny] [--full] [--only PART_OF_A_NAME ...] [--again]

The files are `NETWORK.FORMAT.tflite`, `NETWORK_dynamic.FORMAT.tflite` with a dynamic batch, and
`NETWORK_floatio.int8.tflite` with inputs and outputs of real numbers around int8. What the converter
refuses is listed in `refused.json` beside them, with its reason. A file that is there is kept. Seeds are fixed: the
same TensorFlow on the same kind of processor writes the same bytes. `--tiny` writes the versions that the tests use,
`--full` the applications that are otherwise narrower, as wide as they are published (1 GB).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from keras_networks import APPLICATIONS, FULL, NETWORKS, Size, keras, tf

FORMATS = ("float32", "float16", "dynamic", "int8", "int16x8")
FLOATIO = "_floatio"
APPLICATION = Size(1, 96, 128, 32)
LARGE = Size(1, 48, 80, 16)
TINY = Size(2, 12, 20, 4)
SAMPLES = 8
DYNAMIC = ("unet", "keywords", "transformer", "lstm_while", "gru_while", "detection", "mobilenet_v2")
"""The networks that are also written with a dynamic batch."""
FLOAT_ENDS = ("unet", "keywords", "encoder", "squeeze_excite", "mobilenet_v2")
"""The networks that are also written in int8 with inputs and outputs of real numbers."""
TINY_NETWORKS = (
    "unet",
    "super_resolution",
    "keywords",
    "keywords_1d",
    "segmentation",
    "detection",
    "group_norm",
    "squeeze_excite",
    "encoder",
    "lstm_fused",
    "gru_while",
    "bidirectional_lstm_fused",
    "simplernn_unrolled",
)


def plans(tiny: bool, full: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name -> how to build the network."""
    if tiny:
        for name in TINY_NETWORKS:
            yield name, lambda name=name: NETWORKS[name](TINY)
        return
    for known, size in ((FULL, APPLICATION),) if full else ((NETWORKS, LARGE), (APPLICATIONS, APPLICATION)):
        for name, build in known.items():
            yield name, lambda build=build, size=size: build(size)
            if name in DYNAMIC:
                free = Size(None, size.height, size.width, size.channels)
                yield f"{name}_dynamic", lambda build=build, size=free: build(size)
            if name in FLOAT_ENDS and not full:
                yield f"{name}{FLOATIO}", lambda build=build, size=size: build(size)


def formats(name: str) -> tuple[str, ...]:
    """The number formats in which a network is written."""
    return ("int8",) if name.endswith(FLOATIO) else FORMATS


def randomize(model: Any, rng: np.random.Generator) -> None:
    """Values without a meaning, but none that hides a mistake: no bias of 0, no scale of 1."""
    for weight in model.weights:
        name, shape = weight.name.split("/")[-1].split(":")[0], tuple(weight.shape)
        if "kernel" in name or "embedding" in name or "positions" in name:
            continue
        positive = "gamma" in name or "variance" in name or "alpha" in name
        weight.assign((rng.uniform(0.5, 1.5, shape) if positive else rng.normal(0, 0.1, shape)).astype(np.float32))


def sample(shape: tuple[int | None, ...], kind: np.dtype[Any], rng: np.random.Generator) -> np.ndarray:
    """What such an input sees: smooth images in [0, 1], small integers, other floats normal."""
    extents = tuple(extent or 1 for extent in shape)
    if kind.kind in "iu":
        return rng.integers(0, 11, extents).astype(kind)
    if len(extents) < 4:
        return rng.normal(size=extents).astype(kind)
    grids = np.meshgrid(*(np.linspace(0, 1, extent) for extent in extents), indexing="ij", sparse=True)
    wave = sum(np.sin(sum(rng.uniform(-9, 9) * grid for grid in grids) + rng.uniform(0, 6)) for _ in range(5))
    return (wave / 10 + 0.5 + rng.normal(0, 0.03, extents)).clip(0, 1).astype(kind)


def converters(saved: str, model: Any, seed: int, integers: bool) -> Iterator[tuple[str, Any]]:
    """Number format -> a converter that makes it; inputs and outputs of int8 are `integers`, where all can be."""
    inputs = [
        (tuple(end.shape), np.dtype(end.dtype if isinstance(end.dtype, str) else end.dtype.as_numpy_dtype))
        for end in model.inputs
    ]

    def representative() -> Iterator[list[np.ndarray]]:
        rng = np.random.default_rng(seed)
        for _ in range(SAMPLES):
            yield [sample(shape, kind, rng) for shape, kind in inputs]

    sets = tf.lite.OpsSet
    for name in FORMATS:
        made = tf.lite.TFLiteConverter.from_saved_model(saved)
        made.optimizations = [] if name == "float32" else [tf.lite.Optimize.DEFAULT]
        if name == "float16":
            made.target_spec.supported_types = [tf.float16]
        if name in ("int8", "int16x8"):
            made.representative_dataset = representative
            exact = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
            made.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8 if name == "int8" else exact]
        if name == "int8" and integers and all(kind.kind == "f" for _, kind in inputs):
            made.inference_input_type = made.inference_output_type = tf.int8
        yield name, made


def save(model: Any, folder: str) -> None:
    if isinstance(model, keras.Model):
        # By itself Keras 3 makes every batch dynamic.
        signature = [keras.InputSpec(shape=end.shape, dtype=end.dtype, name=end.name) for end in model.inputs]
        model.export(folder, verbose=False, input_signature=signature)
    else:
        model.save(folder, save_format="tf")


def reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if "error:" in line] or str(error).strip().splitlines()
    return f"{type(error).__name__}: {(lines or [''])[0]}"[:300]


def make(name: str, build: Callable[[], Any], out: Path, record: Record) -> None:
    """Write a network in all formats that are not there; what is being converted counts as refused until it is done."""
    made = {kind for kind in formats(name) if Path(out, f"{name}.{kind}.tflite").exists()}
    wanted = [kind for kind in formats(name) if kind not in made and f"{name}.{kind}" not in record.refused]
    if not wanted:
        return
    seed = zlib.crc32(name.encode())
    keras.utils.set_random_seed(seed)
    keras.backend.clear_session()
    model = build()
    randomize(model, np.random.default_rng(seed))
    with tempfile.TemporaryDirectory() as saved:
        save(model, saved)
        for kind, converter in converters(saved, model, seed, not name.endswith(FLOATIO)):
            if kind not in wanted:
                continue
            record.note(f"{name}.{kind}", "the converter crashes")
            try:
                content = converter.convert()
            except Exception as error:  # the converter's own kinds, from several layers of it
                record.note(f"{name}.{kind}", reason(error))
                print(f"{name}.{kind}: refused: {reason(error)}", flush=True)
                continue
            plain = Path(out, f"{name}.float32.tflite")
            if kind == "dynamic" and plain.exists() and plain.stat().st_size == len(content):
                record.note(f"{name}.{kind}", "as in float32: no weights that are large enough to be quantized")
                continue
            Path(out, f"{name}.{kind}.tflite").write_bytes(content)
            record.note(f"{name}.{kind}", None)
            print(f"{name}.{kind}: {len(content)} bytes", flush=True)


@dataclass
class Record:
    """`refused.json`: what the converter refuses, and why."""

    path: Path
    refused: dict[str, str]

    def note(self, name: str, why: str | None) -> None:
        self.refused.pop(name, None)
        if why is not None:
            self.refused[name] = why
        self.path.write_text(json.dumps(self.refused, indent=1, sort_keys=True) + "\n")


def make_all(options: argparse.Namespace) -> None:
    path = options.out / "refused.json"
    record = Record(path, json.loads(path.read_text()) if path.exists() else {})
    for name, build in plans(options.tiny, options.full):
        if any(part in name for part in options.only):
            make(name, build, options.out, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--again", action="store_true", help="throw away what is there")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.child:
        make_all(options)
        return
    if options.again:
        for old in (*options.out.glob("*.tflite"), Path(options.out, "refused.json")):
            old.unlink(missing_ok=True)
    # The converter kills its process on some models: a child each, until one comes to the end.
    crashes = (-signal.SIGSEGV, -signal.SIGABRT)
    while (code := subprocess.run([sys.executable, __file__, "--child", *sys.argv[1:]]).returncode) in crashes:
        print(f"the converter died of signal {-code}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
