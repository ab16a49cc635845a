"""Write networks of JAX as ONNX by jax2onnx, into a directory.

    python -m venv jax && jax/bin/pip install jax2onnx flax equinox onnxruntime
    jax/bin/python bench/make_jax.py OUT [NAME ...]

JAX's images are `n h w c`; jax2onnx writes a Transpose before and behind each operator that ONNX has for `n c h w`
alone. The networks are those of `jax_networks.py`: Flax NNX, Equinox and plain `jax.lax`, of real architectures but
narrow and shallow, with random weights and a fixed seed, scaled where a network would ignore its input
(`lively.py`). What jax2onnx 0.17 states of the shapes of interior values is left out: some of it is wrong, and ONNX
Runtime refuses files for it. `NAME.nchw.onnx` takes and gives images as `n c h w` (`inputs_as_nchw`),
`NAME.dynamic.onnx` any batch.
What the exporter refuses is named, and left out; a file that is there is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

SEED = 5
IMAGE = (2, 96, 128, 3)


@dataclass(frozen=True)
class Network:
    """How to make a network, and what it takes.

    Args:
        make: seed -> the function.
        shape: of its input.
        tokens: whether its input is one of integers.
        images: the outputs that are images; None where the input is none.
        dynamic: whether to export it for any batch, too.
    """

    make: Callable[[int], Any]
    shape: tuple[int, ...] = IMAGE
    tokens: bool = False
    images: tuple[int, ...] | None = ()
    dynamic: bool = False


def networks() -> dict[str, Network]:
    import jax
    import jax_networks as made
    from flax import nnx

    def of(model: Any, *more: Any) -> Callable[[int], Any]:
        def make(seed: int) -> Any:
            module = model(*more, rngs=nnx.Rngs(seed))
            module.eval()
            return module

        return make

    def keyed(function: Any) -> Callable[[int], Any]:
        return lambda seed: function(jax.random.key(seed))

    return {
        "resnet": Network(of(made.ResNet), dynamic=True),
        "mobilenet": Network(of(made.MobileNet), dynamic=True),
        "convnext": Network(of(made.ConvNeXt), dynamic=True),
        "unet": Network(of(made.UNet), images=(0,), dynamic=True),
        "vit": Network(of(made.ViT), dynamic=True),
        "vit_flax": Network(lambda seed: made.ViT(nnx.Rngs(seed), flax_attention=True)),
        "swin": Network(of(made.Swin), (2, 64, 96, 3), images=(0,)),
        "mixer": Network(of(made.Mixer)),
        "shufflenet": Network(of(made.ShuffleNet)),
        "superresolution": Network(of(made.SuperResolution), (1, 40, 56, 3), images=(0,)),
        "pyramid": Network(of(made.Pyramid)),
        "densenet": Network(of(made.DenseNet), dynamic=True),
        "language": Network(of(made.Language), (2, 37), tokens=True, images=None),
        "gru": Network(keyed(partial(made.Recurrent, "GRUCell")), (2, 37, 20), images=None),
        "lstm": Network(keyed(partial(made.Recurrent, "LSTMCell")), (2, 37, 20), images=None),
        "video": Network(of(made.Video), (1, 5, 24, 32, 3), images=None),
        "equinox": Network(keyed(made.EquinoxConvs), (2, 3, 96, 128), images=None),
        "lax_convolutions": Network(keyed(made.lax_convolutions)),
        "lax_products": Network(keyed(made.lax_products), (2, 10, 14, 24), images=None),
    }


def exported(path: Path, network: Network, seed: int, kind: str) -> None:
    import jax
    import jax.numpy as jnp
    import onnx
    from jax2onnx import to_onnx
    from lively import ALIVE, enliven, sensitivity

    shape = ("batch", *network.shape[1:]) if kind == "dynamic" else network.shape
    given = shape if kind == "dynamic" else jax.ShapeDtypeStruct(shape, jnp.int32 if network.tokens else jnp.float32)
    nchw = {"inputs_as_nchw": [0], "outputs_as_nchw": list(network.images or ())} if kind == "nchw" else {}
    model = to_onnx(network.make(seed), [given], model_name=path.stem, **nchw)
    del model.graph.value_info[:]
    if sensitivity(model) < ALIVE:
        enliven(model)
    onnx.save(model, path)


def main() -> None:
    from make_onnx import say

    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, network in networks().items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        kinds = ["", *(["nchw"] if network.images is not None else []), *(["dynamic"] if network.dynamic else [])]
        for kind in kinds:
            path = out / f"jax_{name}{kind and '.'}{kind}.onnx"
            try:
                if not path.exists():
                    exported(path, network, SEED, kind)
            except Exception as error:
                say(name, path.name, error)
            else:
                say(name, path.name)


if __name__ == "__main__":
    main()
