"""Keras networks for `bench/make_keras.py`: applications in narrow versions, and small networks of every common kind.

A network is a function of a `Size`; images are `n h w c`. Height, width and numbers of channels differ everywhere, so
that no confusion of axes goes unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # its kernels differ from one processor to the next

import keras
import tensorflow as tf
import tf_keras
from keras import layers

Tensor = Any
Network = Callable[["Size"], Any]
CLASSES = 7


@dataclass(frozen=True)
class Size:
    """How large a network is to be.

    Args:
        batch: images or sequences at once; None for a dynamic batch.
        height: of the input image; sequences are as long.
        width: of the input image.
        channels: of the narrowest layer.
    """

    batch: int | None
    height: int
    width: int
    channels: int

    def image(self, colours: int = 3) -> Tensor:
        return keras.Input((self.height, self.width, colours), self.batch, name="image")

    def sequence(self, features: int) -> Tensor:
        return keras.Input((self.height, features), self.batch, name="sequence")


NETWORKS: dict[str, Network] = {}
"""Small networks: each exists in a tiny version, too."""
APPLICATIONS: dict[str, Network] = {}


def network(function: Network) -> Network:
    NETWORKS[function.__name__] = function
    return function


# -- images


def conv(
    x: Tensor, channels: int, kernel: tuple[int, int] = (3, 5), activation: str = "relu", **options: Any
) -> Tensor:
    """Convolution, batch normalization, activation."""
    x = layers.Conv2D(channels, kernel, padding="same", use_bias=False, **options)(x)
    return layers.Activation(activation)(layers.BatchNormalization()(x))


def classify(x: Tensor) -> Tensor:
    return layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x))


@network
def unet(size: Size) -> Any:
    """Two levels down and up, by transposed convolutions, with skips."""
    c, image = size.channels, size.image()
    first = conv(image, c)
    second = conv(layers.MaxPooling2D(2)(first), 2 * c)
    deep = conv(layers.MaxPooling2D(2)(second), 4 * c)
    up = layers.Conv2DTranspose(2 * c, (2, 2), strides=2, padding="same")(deep)
    up = conv(layers.Concatenate()([up, second]), 2 * c)
    up = layers.Conv2DTranspose(c, (3, 4), strides=2, padding="same", activation="relu")(up)
    up = conv(layers.Concatenate()([first, up]), c)
    return keras.Model(image, layers.Conv2D(2, 1, activation="sigmoid")(up))


@network
def unet_resize(size: Size) -> Any:
    """Up by nearest and by bilinear resizing, LeakyReLU, additive skips."""
    c, image = size.channels, size.image()
    first = conv(image, c, activation="leaky_relu")
    second = conv(first, 2 * c, activation="leaky_relu", strides=2)
    deep = conv(second, 2 * c, activation="leaky_relu", strides=2)
    up = layers.Add()([layers.UpSampling2D(2, interpolation="nearest")(deep), second])
    up = layers.UpSampling2D(2, interpolation="bilinear")(conv(up, c, activation="leaky_relu"))
    return keras.Model(image, layers.Conv2D(2, (3, 1), padding="same")(layers.Multiply()([up, first])))


@network
def super_resolution(size: Size) -> Any:
    """Three ways up, added: depth to space, transposed convolution, bilinear resizing."""
    c, image = size.channels, size.image()
    x = conv(image, 2 * c)
    x = layers.Add()([x, conv(x, 2 * c)])
    pixels = DepthToSpace(2)(layers.Conv2D(4 * 3, 3, padding="same")(x))
    learned = layers.Conv2DTranspose(3, (4, 3), strides=2, padding="same")(x)
    plain = layers.UpSampling2D(2, interpolation="bilinear")(image)
    return keras.Model(image, layers.ReLU(1.0)(layers.Add()([pixels, learned, plain])))


@network
def keywords(size: Size) -> Any:
    """DS-CNN on a spectrogram: depthwise separable convolutions in two dimensions."""
    c, image = size.channels, size.image(1)
    x = conv(image, 2 * c, (10, 4), strides=(2, 1))
    for _ in range(2):
        x = layers.ReLU()(layers.BatchNormalization()(layers.DepthwiseConv2D((3, 5), padding="same")(x)))
        x = conv(x, 3 * c, (1, 1))
    x = layers.AveragePooling2D((x.shape[1] // 2, 2))(x)
    return keras.Model(image, layers.Dense(CLASSES, activation="softmax")(layers.Flatten()(x)))


@network
def keywords_1d(size: Size) -> Any:
    """The same in one dimension: convolutions along time."""
    c, sequence = size.channels, size.sequence(10)
    x = layers.Conv1D(2 * c, 5, strides=2, padding="same", activation="relu")(sequence)
    x = layers.SeparableConv1D(3 * c, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling1D(2)(x)
    x = layers.Conv1D(2 * c, 3, dilation_rate=2, padding="causal", activation="relu")(x)
    return keras.Model(sequence, layers.Dense(CLASSES)(layers.GlobalMaxPooling1D()(x)))


@network
def segmentation(size: Size) -> Any:
    """DeepLab's head: dilations, an image pool, a resize to the input."""
    c, image = size.channels, size.image()
    x = conv(conv(image, c, strides=2), 2 * c, (3, 3), strides=2)
    branches = [conv(x, c, (1, 1)), conv(x, c, (3, 3), dilation_rate=2), conv(x, c, (3, 3), dilation_rate=(3, 4))]
    separable = layers.DepthwiseConv2D(3, dilation_rate=2, padding="same")(x)
    branches.append(conv(separable, c, (1, 1)))
    pooled = conv(layers.GlobalAveragePooling2D(keepdims=True)(x), c, (1, 1))
    branches.append(layers.UpSampling2D((x.shape[1], x.shape[2]), interpolation="bilinear")(pooled))
    x = layers.Conv2D(CLASSES, 1)(conv(layers.Concatenate()(branches), c, (1, 1)))
    scores = layers.Resizing(size.height, size.width)(x)
    return keras.Model(image, layers.Softmax()(scores))


@network
def labels(size: Size) -> Any:
    """The class of every pixel: PReLU, a transposed convolution, the greatest channel."""
    c, image = size.channels, size.image()
    x = layers.PReLU(shared_axes=[1, 2])(conv(image, 2 * c, strides=2))
    x = layers.PReLU()(layers.Conv2D(c, (5, 3), padding="same")(x))
    return keras.Model(image, Greatest()(layers.Conv2DTranspose(CLASSES, 2, strides=2)(x)))


@network
def detection(size: Size) -> Any:
    """SSD's heads on two scales: boxes and scores of all anchors."""
    image, boxes, scores = heads(size)
    return keras.Model(image, [boxes, scores])


@network
def detection_postprocess(size: Size) -> Any:
    """The same with TFLite_Detection_PostProcess behind."""
    image, boxes, scores = heads(size)
    return keras.Model(image, PostProcess()([boxes, scores]))


@network
def group_norm(size: Size) -> Any:
    """GroupNormalization over groups, over the instance, and LayerNormalization over channels."""
    c, image = size.channels, size.image()
    x = layers.Conv2D(4 * c, (3, 5), padding="same")(image)
    x = layers.Activation("silu")(layers.GroupNormalization(c)(x))
    x = layers.Conv2D(2 * c, 3, strides=2, padding="same")(x)
    x = layers.Activation("gelu")(layers.GroupNormalization(-1)(x))
    x = layers.LayerNormalization()(layers.DepthwiseConv2D((5, 3), padding="same")(x))
    return keras.Model(image, classify(x))


@network
def shuffle(size: Size) -> Any:
    """ShuffleNet's unit: grouped convolutions, a channel shuffle, a split and a concatenation."""
    c, image = 4 * size.channels, size.image()
    x = conv(image, c, strides=2)
    for _ in range(2):
        left, right = Halves()(x)
        right = layers.Conv2D(c // 2, 1, groups=2)(right)
        right = layers.DepthwiseConv2D((3, 5), padding="same")(right)
        x = layers.Concatenate()([left, conv(right, c // 2, (1, 1))])
        x = layers.Reshape((x.shape[1], x.shape[2], 2, c // 2))(x)
        x = layers.Permute((1, 2, 4, 3))(x)
        x = layers.Reshape((x.shape[1], x.shape[2], c))(x)
    return keras.Model(image, classify(x))


@network
def squeeze_excite(size: Size) -> Any:
    """MobileNetV3's unit: hard swish, hard sigmoid, channel attention, padding of its own."""
    c, image = size.channels, size.image()
    x = layers.ZeroPadding2D(((0, 1), (1, 2)))(image)
    x = layers.Conv2D(4 * c, (3, 5), strides=2)(x)
    x = layers.Activation("hard_swish")(x)
    wide = layers.Activation("hard_swish")(layers.DepthwiseConv2D((5, 3), padding="same")(x))
    gate = layers.GlobalAveragePooling2D(keepdims=True)(wide)
    gate = layers.Conv2D(4 * c, 1, activation="hard_sigmoid")(layers.Conv2D(c, 1, activation="relu6")(gate))
    x = layers.Add()([x, layers.Conv2D(4 * c, 1)(layers.Multiply()([wide, gate]))])
    return keras.Model(image, classify(x))


@network
def video(size: Size) -> Any:
    """Convolutions in three dimensions."""
    c = size.channels
    clip = keras.Input((4, size.height // 2, size.width // 2, 3), size.batch, name="clip")
    x = layers.Conv3D(c, (2, 3, 5), padding="same", activation="relu")(clip)
    x = layers.Conv3D(2 * c, (3, 3, 1), strides=(1, 2, 2), activation="relu")(x)
    return keras.Model(clip, layers.Dense(CLASSES)(layers.GlobalAveragePooling3D()(x)))


@network
def vision_transformer(size: Size) -> Any:
    """Patches by a convolution, positions, a transformer block, the mean token."""
    c, image = size.channels, size.image()
    x = layers.Conv2D(4 * c, (4, 4), strides=4)(image)
    x = Positions()(layers.Reshape((x.shape[1] * x.shape[2], 4 * c))(x))
    x = block(x, 4 * c, 2)
    return keras.Model(image, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


# -- sequences


def block(x: Tensor, features: int, heads: int, widen: int = 3) -> Tensor:
    """A transformer block: attention and a feed-forward network, each behind a LayerNormalization."""
    normal = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, features // heads)(normal, normal)])
    normal = layers.LayerNormalization()(x)
    wide = layers.Dense(widen * features, activation="gelu")(normal)
    return layers.Add()([x, layers.Dense(features)(wide)])


@network
def encoder(size: Size) -> Any:
    """A transformer block on a sequence of features."""
    features, sequence = 4 * size.channels, size.sequence(6)
    x = block(Positions()(layers.Dense(features)(sequence)), features, 2, widen=5)
    return keras.Model(sequence, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


@network
def transformer(size: Size) -> Any:
    """Token ids, an embedding, positions, a block, a score for every token."""
    features = 4 * size.channels
    tokens = keras.Input((size.height,), size.batch, dtype="int32", name="tokens")
    x = Positions()(layers.Embedding(11, features)(tokens))
    x = block(x, features, 2)
    return keras.Model(tokens, layers.Dense(11)(x))


def recurrent(name: str, cell: str, both: bool, how: str) -> None:
    """Register a recurrent network; `how`: `fused` (one operator), `while` (a WHILE), or `unrolled`."""

    def build(size: Size) -> Any:
        # Keras 2 marks its cells, so that the converter makes fused operators of them; Keras 3 does not.
        library = tf_keras if how == "fused" else keras
        kinds, units = library.layers, 3 * size.channels
        shape = (min(size.height, 12) if how == "unrolled" else size.height, 5)
        sequence = (
            kinds.Input(shape, size.batch, name="sequence")
            if library is keras
            else kinds.Input(shape, batch_size=size.batch, name="sequence")
        )
        x = sequence
        for width, every in ((units, True), (units + 2, False)):
            # Large weights: where a cell stays below 0.5, LiteRT's int8 kernel computes nothing.
            large = library.initializers.RandomNormal(stddev=0.6, seed=width)
            layer = getattr(kinds, cell)(
                width, return_sequences=every, unroll=how == "unrolled", kernel_initializer=large
            )
            x = (kinds.Bidirectional(layer) if both else layer)(x)
        return library.Model(sequence, kinds.Dense(CLASSES)(x))

    build.__name__, build.__doc__ = name, f"Two layers of {cell}, {how}."
    network(build)


for _how in ("fused", "while", "unrolled"):
    for _cell in ("LSTM", "GRU", "SimpleRNN"):
        recurrent(f"{_cell.lower()}_{_how}", _cell, False, _how)
    for _cell in ("LSTM", "GRU"):
        recurrent(f"bidirectional_{_cell.lower()}_{_how}", _cell, True, _how)


# -- layers that Keras has not


class DepthToSpace(layers.Layer):
    """`n h w (a b c) -> n (h a) (w b) c`."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def call(self, x: Tensor) -> Tensor:
        return tf.nn.depth_to_space(x, self.block)


class Greatest(layers.Layer):
    """The channel with the largest value."""

    def call(self, x: Tensor) -> Tensor:
        return tf.argmax(x, -1, output_type=tf.int32)


class Halves(layers.Layer):
    """The channels in two halves."""

    def call(self, x: Tensor) -> Any:
        return tf.split(x, 2, axis=-1)


class Positions(layers.Layer):
    """A learned vector for every position, added."""

    def build(self, shape: Any) -> None:
        self.positions = self.add_weight(shape=tuple(shape[1:]), initializer="random_normal", name="positions")

    def call(self, x: Tensor) -> Tensor:
        return x + self.positions


def heads(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Image, boxes `n a 4` and scores `n a k`: two anchors a pixel on two scales."""
    c, image = size.channels, size.image()
    fine = conv(conv(image, c, strides=2), 2 * c, strides=2)
    coarse = conv(fine, 3 * c, strides=2)
    boxes, scores = [], []
    for x in (fine, coarse):
        boxes.append(layers.Reshape((-1, 4))(layers.Conv2D(2 * 4, (3, 1), padding="same")(x)))
        scores.append(layers.Reshape((-1, 3))(layers.Conv2D(2 * 3, (1, 3), padding="same")(x)))
    score = layers.Activation("sigmoid")(layers.Concatenate(axis=1)(scores))
    return image, layers.Concatenate(axis=1)(boxes), score


class PostProcess(layers.Layer):
    """TFLite_Detection_PostProcess, by the name that the converter knows it by."""

    ATTRIBUTES: ClassVar[dict[str, str]] = {
        "max_detections": "i: 5",
        "max_classes_per_detection": "i: 1",
        "nms_score_threshold": "f: 0.3",
        "nms_iou_threshold": "f: 0.5",
        "num_classes": "i: 2",
        "y_scale": "f: 10.0",
        "x_scale": "f: 10.0",
        "h_scale": "f: 5.0",
        "w_scale": "f: 5.0",
        "use_regular_nms": "b: false",
    }

    def call(self, ends: Any) -> Any:
        boxes, scores = ends
        count = boxes.shape[1]
        steps = tf.range(count, dtype=tf.float32) / count
        anchors = tf.stack([steps, 1 - steps, 0.1 + 0.3 * steps, 0.4 - 0.2 * steps], axis=1)
        attributes = "".join(f' attr {{ key: "{key}" value {{ {value} }} }}' for key, value in self.ATTRIBUTES.items())
        name = f'name: "TFLite_Detection_PostProcess"{attributes}'

        @tf.function(experimental_implements=name)
        def composite(boxes: Tensor, scores: Tensor, anchors: Tensor) -> Any:
            return tf.zeros((1, 5, 4)), tf.zeros((1, 5)), tf.zeros((1, 5)), tf.zeros((1,))

        return composite(boxes, scores, anchors)


# -- applications


def application(build: Callable[[Tensor], Any], divisor: int = 1) -> Network:
    """A Keras application with random weights, all its layers narrower by a divisor."""

    def made(size: Size) -> Any:
        model = build(size.image())
        return model if divisor == 1 else keras.models.clone_model(model, clone_function=narrower(divisor))

    return made


def narrower(divisor: int) -> Callable[[Any], Any]:
    """A clone of a layer with fewer filters, units or channels; what only passes them on is as it was."""

    def clone(layer: Any) -> Any:
        if isinstance(layer, keras.Sequential):
            return keras.Sequential([clone(inner) for inner in layer.layers], name=layer.name)
        config = layer.get_config()
        depthwise = config.get("groups", 1) == config.get("filters")
        for key in ("filters", "units", "projection_dim", *(["groups"] if depthwise else [])):
            if config.get(key):
                config[key] = max(config[key] // divisor, 4)
        if config.get("target_shape") and tuple(config["target_shape"][:2]) == (1, 1):
            config["target_shape"] = (1, 1, config["target_shape"][2] // divisor)
        return type(layer).from_config(config)

    return clone


_apps, _plain = keras.applications, {"weights": None, "classes": CLASSES}
_WIDE: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "efficientnet_b0": (lambda image: _apps.EfficientNetB0(input_tensor=image, **_plain), 2),
    "densenet121": (lambda image: _apps.DenseNet121(input_tensor=image, **_plain), 2),
    "inception_v3": (lambda image: _apps.InceptionV3(input_tensor=image, **_plain), 4),
    "xception": (lambda image: _apps.Xception(input_tensor=image, **_plain), 4),
    "convnext_tiny": (lambda image: _apps.ConvNeXtTiny(input_tensor=image, **_plain), 4),
    "resnet50": (lambda image: _apps.ResNet50(input_tensor=image, **_plain), 2),
}
APPLICATIONS |= {
    "mobilenet_v1": application(lambda image: _apps.MobileNet(input_tensor=image, alpha=0.25, **_plain)),
    "mobilenet_v2": application(lambda image: _apps.MobileNetV2(input_tensor=image, alpha=0.35, **_plain)),
    "mobilenet_v3_small": application(lambda image: _apps.MobileNetV3Small(input_tensor=image, **_plain)),
    "mobilenet_v3_large": application(lambda image: _apps.MobileNetV3Large(input_tensor=image, **_plain)),
    "nasnet_mobile": application(lambda image: _apps.NASNetMobile(input_tensor=image, **_plain)),
    **{name: application(build, divisor) for name, (build, divisor) in _WIDE.items()},
}
FULL = {f"{name}_full": application(build) for name, (build, _) in _WIDE.items()}
"""Those that are narrower above, as wide as they are published: 20 to 110 MB of float32."""
