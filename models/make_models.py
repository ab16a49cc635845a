"""Make the small TensorFlow Lite models of this directory: a trained convolutional network in four precisions.

    python -m venv tf && tf/bin/pip install tensorflow-cpu==2.19.0
    tf/bin/python models/make_models.py [OUT_DIRECTORY]

TensorFlow is needed by this script alone, never by the package. Seeds are fixed and operators deterministic: the same
TensorFlow on the same kind of processor writes the same bytes.

In every tensor of rank four N, H, W and C differ, and in every kernel its four extents, so that no confusion of axes
goes unnoticed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # its kernels differ from one processor to the next

import numpy as np
import tensorflow as tf

SEED = 20240607
BATCH, HEIGHT, WIDTH, COLOURS = 2, 24, 40, 3
CLASSES = ("lying bar", "standing bar", "rising bar", "falling bar", "gradient", "blob")
STEPS, TRAINING_BATCH = 400, 64


def draw(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` noisy images of a random class each; images `n h w c` in [0, 1], labels `n`."""
    labels = rng.integers(len(CLASSES), size=count)
    images = np.empty((count, HEIGHT, WIDTH, COLOURS), np.float32)
    for image, label in zip(images, labels, strict=True):
        paper, ink = rng.uniform(0, 1, (2, COLOURS))
        image[:] = paper + (ink - paper) * shape_of(int(label), rng)[..., None]
        image += rng.normal(0, 0.06, image.shape)
    return images.clip(0, 1), labels.astype(np.int32)


def shape_of(label: int, rng: np.random.Generator) -> np.ndarray:
    """How much ink each pixel `h w` gets, in [0, 1]."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    y0, x0 = rng.uniform(0.3, 0.7) * HEIGHT, rng.uniform(0.3, 0.7) * WIDTH
    width = rng.uniform(1.5, 3.5)
    if CLASSES[label] == "gradient":
        slope = (y - y0) * rng.uniform(-1, 1) / HEIGHT + (x - x0) * rng.choice((-1, 1)) / WIDTH
        return slope.clip(-0.5, 0.5) + 0.5
    if CLASSES[label] == "blob":
        return np.exp(-((y - y0) ** 2 + (x - x0) ** 2) / (2 * (1.5 * width) ** 2))
    angle = np.pi / 4 * (0, 2, 3, 1)[label] + rng.normal(0, 0.12)
    return np.exp(-((((y - y0) * np.cos(angle) - (x - x0) * np.sin(angle)) / width) ** 2))


def network(batch: int | None = None) -> tf.keras.Model:
    """Convolution, a residual block, two branches concatenated, pools, and a dense head behind a Flatten."""
    layers = tf.keras.layers

    def convolve(x: tf.Tensor, layer: tf.keras.layers.Layer) -> tf.Tensor:
        return layers.ReLU(max_value=6.0)(layers.BatchNormalization(momentum=0.9)(layer(x)))

    def conv(channels: int, kernel: tuple[int, int], stride: int = 1) -> tf.keras.layers.Layer:
        return layers.Conv2D(channels, kernel, strides=stride, padding="same", use_bias=False)

    image = tf.keras.Input((HEIGHT, WIDTH, COLOURS), batch, name="image")
    stem = convolve(image, conv(8, (5, 4), stride=2))  # 2 12 20 8
    mixed = convolve(stem, layers.DepthwiseConv2D((3, 5), padding="same", depth_multiplier=2, use_bias=False))
    mixed = layers.BatchNormalization(momentum=0.9)(conv(8, (1, 1))(mixed))
    block = layers.Add()([stem, mixed])
    wide = convolve(block, conv(6, (3, 5)))
    smooth = layers.AveragePooling2D((3, 5), strides=1, padding="same")(block)
    both = layers.Concatenate()([wide, smooth])  # 2 12 20 14
    small = layers.MaxPooling2D(2)(both)  # 2 6 10 14
    deep = convolve(small, conv(16, (3, 5)))  # 2 6 10 16
    last = layers.AveragePooling2D(2)(deep)  # 2 3 5 16
    head = layers.Dense(24, activation="relu")(layers.Flatten()(last))
    return tf.keras.Model(image, layers.Softmax()(layers.Dense(len(CLASSES))(head)), name="tinynet")


def train(model: tf.keras.Model, rng: np.random.Generator) -> float:
    """Train for `STEPS` steps; return the share of 1,000 fresh images that are classified rightly."""
    model.compile(tf.keras.optimizers.Adam(4e-3), "sparse_categorical_crossentropy")
    for _ in range(STEPS):
        model.train_on_batch(*draw(TRAINING_BATCH, rng))
    images, labels = draw(1000, rng)
    return float(np.mean(model.predict(images, verbose=0).argmax(1) == labels))


def representative() -> Iterator[list[np.ndarray]]:
    """Batches for the calibration of the quantized model."""
    rng = np.random.default_rng(SEED + 1)
    for _ in range(100):
        yield [draw(BATCH, rng)[0]]


def variants(model: tf.keras.Model) -> Iterator[tuple[str, bytes]]:
    """File name and content of each precision."""
    fixed = network(BATCH)
    fixed.set_weights(model.get_weights())

    def converter(*, optimized: bool = True) -> tf.lite.TFLiteConverter:
        made = tf.lite.TFLiteConverter.from_keras_model(fixed)
        made.optimizations = [tf.lite.Optimize.DEFAULT] if optimized else []
        return made

    yield "tinynet_float", converter(optimized=False).convert()

    half = converter()
    half.target_spec.supported_types = [tf.float16]
    yield "tinynet_float16", half.convert()

    yield "tinynet_dynamic", converter().convert()

    full = converter()
    full.representative_dataset = representative
    full.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    full.inference_input_type = full.inference_output_type = tf.int8
    yield "tinynet_int8", full.convert()


def accuracy(content: bytes) -> float:
    """The share of 1,000 fresh images that the TensorFlow Lite interpreter classifies rightly."""
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    images, labels = draw(1000, np.random.default_rng(SEED + 2))
    if source["dtype"] == np.int8:
        scale, zero = source["quantization"]
        images = (images / scale + zero).round().clip(-128, 127).astype(np.int8)
    guesses = []
    for start in range(0, len(images), BATCH):
        interpreter.set_tensor(source["index"], images[start : start + BATCH])
        interpreter.invoke()
        guesses += interpreter.get_tensor(result["index"]).argmax(1).tolist()
    return float(np.mean(np.array(guesses) == labels))


def main(directory: Path) -> None:
    tf.keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    model = network()
    print(f"TensorFlow {tf.__version__}; {model.count_params()} parameters")
    print(f"trained: {train(model, np.random.default_rng(SEED)):.1%} right")
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in variants(model):
        (directory / f"{name}.tflite").write_bytes(content)
        print(f"{name}.tflite: {len(content)} bytes, {accuracy(content):.1%} right")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
