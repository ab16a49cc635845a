"""Make the TensorFlow Lite models that `latency.py` measures: known architectures in five number formats each.

    python bench/latency_models.py OUT_DIRECTORY [--only NAME ...] [--format FORMAT ...]

Wants TensorFlow (2.19 is what the figures in docs/tflite.md were made with). Weights are random, and batch
normalizations are set from data, so that activations stay in range: this is about latency and about what two runtimes
make of one model, not about accuracy.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

layers, applications = tf.keras.layers, tf.keras.applications
SEED, SAMPLES = 20250311, 8
FORMATS = ("float32", "float16", "dynamic", "int8", "int16x8")


def application(name: str, size: int, **options: object) -> tf.keras.Model:
    """An architecture of `keras.applications`, images `n h w 3` in, probabilities out."""
    return getattr(applications, name)(input_shape=(size, size, 3), weights=None, classes=1000, **options)


def residual(x: tf.Tensor, width: int, stride: int) -> tf.Tensor:
    """Two 3x3 convolutions beside a shortcut."""

    def conv(x: tf.Tensor, kernel: int, stride: int) -> tf.Tensor:
        y = layers.Conv2D(width, kernel, strides=stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(y)

    y = conv(layers.ReLU()(conv(x, 3, stride)), 3, 1)
    shortcut = x if stride == 1 and x.shape[-1] == width else conv(x, 1, stride)
    return layers.ReLU()(layers.Add()([y, shortcut]))


def resnet() -> tf.keras.Model:
    """ResNet-18 at 160 x 160."""
    image = tf.keras.Input((160, 160, 3))
    x = layers.Conv2D(64, 7, strides=2, padding="same", use_bias=False)(image)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(layers.ReLU()(layers.BatchNormalization()(x)))
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            x = residual(x, width, 2 if stage and not block else 1)
    return tf.keras.Model(image, layers.Dense(1000, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def lstm() -> tf.keras.Model:
    """Two LSTMs over 64 steps."""
    frames = tf.keras.Input((64, 128))
    x = layers.LSTM(256)(layers.LSTM(256, return_sequences=True)(frames))
    return tf.keras.Model(frames, layers.Dense(64, activation="softmax")(x))


def transformer() -> tf.keras.Model:
    """Four encoder blocks of width 256 with eight heads, over 128 tokens."""
    tokens = tf.keras.Input((128, 256))
    x = tokens
    for _ in range(4):
        attended = layers.MultiHeadAttention(8, 32)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        y = layers.Dense(256)(layers.Dense(1024, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, y]))
    return tf.keras.Model(tokens, layers.Dense(64, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def keyword() -> tf.keras.Model:
    """Keyword spotting: depthwise-separable convolutions over a spectrogram (DS-CNN-L)."""
    spectrogram = tf.keras.Input((98, 40, 1))
    x = layers.Conv2D(276, (10, 4), strides=(2, 1), padding="same")(spectrogram)
    for block in range(5):
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.DepthwiseConv2D(3, strides=1 if block else 2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        x = layers.Conv2D(276, 1, use_bias=False)(x)
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    return tf.keras.Model(spectrogram, layers.Dense(12, activation="softmax")(x))


MODELS: dict[str, Callable[[], tf.keras.Model]] = {
    "mobilenet_v1": lambda: application("MobileNet", 224),
    "mobilenet_v2": lambda: application("MobileNetV2", 224),
    "mobilenet_v3": lambda: application("MobileNetV3Large", 224, include_preprocessing=False),
    "efficientnet_b0": lambda: application("EfficientNetB0", 224),
    "densenet121": lambda: application("DenseNet121", 160),
    "resnet18": resnet,
    "resnet50": lambda: application("ResNet50", 224),
    "inception_v3": lambda: application("InceptionV3", 299),
    "lstm": lstm,
    "transformer": transformer,
    "keyword": keyword,
}

LOOPS = ("lstm",)
"""Models with loops: TensorFlow 2.19 aborts the process when it calibrates one."""


def settle(model: tf.keras.Model, data: np.ndarray) -> None:
    """Set the batch normalizations' statistics from data, as training would."""
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
    model(data, training=True)


def converted(model: tf.keras.Model, data: np.ndarray, form: str) -> bytes:
    """The model as a TensorFlow Lite file of batch 1, in a number format."""

    def samples() -> Iterator[list[np.ndarray]]:
        for sample in data:
            yield [sample[None]]

    serve = tf.function(lambda x: model(x, training=False)).get_concrete_function(
        tf.TensorSpec((1, *model.input_shape[1:]), tf.float32, name="input")
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions([convert_variables_to_constants_v2(serve)])
    if form != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form in ("int8", "int16x8"):
        converter.representative_dataset = samples
    if form == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if form == "int16x8":
        short = tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        converter.target_spec.supported_ops = [short, tf.lite.OpsSet.TFLITE_BUILTINS]
    return converter.convert()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--only", nargs="*", choices=list(MODELS), default=list(MODELS))
    arguments.add_argument("--format", nargs="*", choices=FORMATS, default=list(FORMATS))
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only:
        tf.keras.backend.clear_session()
        tf.keras.utils.set_random_seed(SEED)
        model = MODELS[name]()
        data = np.random.default_rng(SEED).normal(size=(SAMPLES, *model.input_shape[1:])).astype(np.float32)
        settle(model, data)
        for form in given.format:
            if name in LOOPS and form.startswith("int"):
                continue
            try:
                content = converted(model, data, form)
            except Exception as error:  # the converter has a class of exceptions for each of its stages
                print(f"{name} {form}: {str(error).splitlines()[0][:120]}", flush=True)
                continue
            Path(given.out, f"{name}_{form}.tflite").write_bytes(content)
            print(f"{name} {form}: {len(content) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
