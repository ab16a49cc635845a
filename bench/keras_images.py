"""Networks written by hand in Keras: NHWC where channels first would be wanted, and axes on the move."""

from __future__ import annotations

from typing import Any

from tensorflow import keras
from tensorflow.keras import layers


def small_unet() -> Any:
    image = keras.Input((96, 128, 3), name="image")
    x, skips = image, []
    for width in (16, 32, 48):
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.MaxPool2D()(x)
    x = layers.Conv2D(64, 3, padding="same", activation="relu")(x)
    for width, skip in zip((48, 32, 16), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(width, 2, 2)(x)
        x = layers.Conv2D(width, 3, padding="same", activation="relu")(layers.Concatenate()([x, skip]))
    return keras.Model(image, layers.Softmax()(layers.Conv2D(5, 1)(x)))


def attention_on_images() -> Any:
    """Convolutions, attention over the positions, and back to an image."""
    image = keras.Input((48, 64, 3), name="image")
    x = layers.Conv2D(24, 3, 4, padding="same", activation="relu")(image)
    flat = layers.Reshape((12 * 16, 24))(x)
    flat = layers.Add()([flat, layers.MultiHeadAttention(3, 8)(layers.LayerNormalization()(flat), flat)])
    y = layers.Reshape((12, 16, 24))(layers.LayerNormalization()(flat))
    y = layers.Concatenate()([layers.DepthwiseConv2D(3, padding="same")(y), x])
    return keras.Model(image, layers.Dense(7)(layers.GlobalAveragePooling2D()(y)))


def depth_to_space() -> Any:
    import tensorflow as tf

    class DepthToSpace(layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return tf.nn.depth_to_space(x, 2)

    image = keras.Input((40, 56, 3), name="image")
    x = layers.Conv2D(24, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(24, 3, padding="same", activation="relu")(DepthToSpace()(layers.Conv2D(48, 1)(x)))
    return keras.Model(image, layers.Conv2D(3, 3, padding="same")(DepthToSpace()(x)))


def convolutions() -> Any:
    """Of one, two and three dimensions, with their axes in between."""
    signal = keras.Input((60, 12), name="signal")
    x = layers.Conv1D(16, 3, padding="same", activation="relu")(signal)
    x = layers.Conv2D(8, 3, padding="same")(layers.Reshape((10, 6, 16))(layers.MaxPool1D(1)(x)))
    y = layers.Conv2D(8, 1)(layers.Permute((2, 1, 3))(x))
    z = layers.Conv3D(4, 2)(layers.Reshape((6, 5, 2, 8))(y))
    return keras.Model(signal, layers.Dense(7)(layers.Flatten()(z)))
