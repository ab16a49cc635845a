"""Write the networks of `bench/gpu.py`, with random weights: as ONNX by PyTorch, and as .tflite by other converters.

    torch/bin/python bench/gpu_networks.py onnx OUT [NAME ...]                    OUT/NAME.onnx
    litert_torch/bin/python bench/gpu_networks.py litert-torch OUT [NAME ...]     OUT/NAME.litert-torch.tflite
    onnx2tf/bin/python bench/gpu_networks.py onnx2tf OUT [NAME ...]               OUT/NAME.onnx2tf.tflite of NAME.onnx

The first environment has torch, timm, transformers, onnxscript, the second litert-torch, timm and transformers, the
third onnx2tf and tensorflow. Each network is written in a child process with a time limit. What a converter refuses
gets a file `.txt` with its reason; what is there is left as it is. Ids are int64 in ONNX files and int32 in those of
litert-torch.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

LIMIT_SECONDS = 150
"""Processor time of one network."""
SEED = 0
OWN = """
bert convnext convnextv2 cvt detr dpt efficientnet focalnet llama mobilenet mobilevit mobilevitv2 pvtv2 resnet segformer
shufflenet superresolution swin swinv2 unet vit whisper_encoder yolo
"""
"""Networks of `make_onnx.py`."""
TRANSFORMERS = """
albert bloom deberta-v2 distilbert electra fnet gemma2 gpt2 gpt_neo mamba mobilebert modernbert mpnet
opt phi3 qwen2 qwen3 roberta roformer squeezebert
beit clip_vision_model dinov2 siglip_vision_model yolos
glpn levit poolformer swiftformer
encodec hubert sew wav2vec2 wav2vec2-conformer
"""
"""Networks of `make_transformers.py`: texts, patches, images, sounds."""
TIMM = {
    64: """
    cait_xxs24_224 coat_lite_tiny coatnet_nano_rw_224 davit_tiny deit_tiny_distilled_patch16_224 gmixer_12_224
    maxvit_rmlp_pico_rw_256 mixer_s32_224 mvitv2_tiny pit_ti_224 resmlp_12_224 tnt_s_patch16_224 twins_pcpvt_small
    vit_tiny_patch16_224 xcit_nano_12_p8_224
    """,
    96: """
    cspdarknet53 darknet17 densenet121 dla46_c edgenext_xx_small efficientformerv2_s0 efficientvit_b0
    ese_vovnet19b_dw fastvit_t8 ghostnet_050 hardcorenas_a hrnet_w18_small inception_next_atto lcnet_050
    legacy_seresnet18 levit_128s mixnet_s mnasnet_small mobilenetv3_small_050 mobilenetv4_conv_small mobileone_s0
    mobilevit_xxs poolformer_s12 regnetx_002 regnety_002 repvgg_a0 repvit_m0_9 res2net50_26w_4s resnest14d resnet10t
    rexnet_100 selecsls42b skresnet18 starnet_s1 tf_efficientnet_lite0 visformer_tiny
    """,
}
"""Extent of the image -> networks of the timm package."""

Network = Callable[[], tuple[Any, tuple[Any, ...]]]
"""Makes a network, and what it is fed."""


def of_timm(name: str, size: int) -> tuple[Any, tuple[Any, ...]]:
    """Return an image network with an image; of another size than its own where it can be had."""
    import timm
    import torch

    for own in ({"img_size": size}, {}):
        try:
            made = timm.create_model(name, pretrained=False, **own).eval()
        except TypeError:
            continue
        fixed = made.default_cfg.get("fixed_input_size") and not own
        return made, (torch.rand(1, *(made.default_cfg["input_size"] if fixed else (3, size, size))),)
    raise ValueError(name)


def of_transformers(kind: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network of `make_transformers.py`, its main output alone, with one input."""
    import make_transformers
    from torch_networks import first_of

    made, fed = make_transformers.network(kind)
    return first_of(made), (fed[:1],)


def of_make_onnx(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network of `make_onnx.py`, fed one image or text."""
    import make_onnx

    export = make_onnx.architectures()[name]()
    return export.module.eval(), tuple(each[:1] for each in export.inputs)


def step() -> tuple[Any, tuple[Any, ...]]:
    """Return one step of a language model: it reads one token and a cache of earlier ones."""
    import torch
    import transformers as hf

    config = hf.LlamaConfig(
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        vocab_size=500,
    )

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = hf.LlamaForCausalLM(config)

        def forward(self, token: Any, *cached: Any) -> Any:
            cache = hf.DynamicCache()
            for layer in range(len(cached) // 2):
                cache.update(cached[2 * layer], cached[2 * layer + 1], layer)
            logits = self.model(token, past_key_values=cache, use_cache=True).logits
            return logits, *(each for layer in cache.layers for each in (layer.keys, layer.values))

    return Step().eval(), (torch.randint(0, 500, (1, 1)), *(torch.randn(1, 2, 15, 16) for _ in range(4)))


def recurrent(kind: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network that reads 20 frames of sound in both directions, and gives logarithms of likelihoods."""
    import torch

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(torch.nn, kind)(40, 48, num_layers=2, bidirectional=True, batch_first=True)
            self.last = torch.nn.Linear(96, 30)

        def forward(self, frames: Any) -> Any:
            return self.last(self.cells(frames)[0]).log_softmax(-1)

    return Recurrent().eval(), (torch.randn(1, 20, 40),)


def networks() -> dict[str, Network]:
    """Return name -> how to make it."""
    return {
        **{name: partial(of_make_onnx, name) for name in OWN.split()},
        "llama_step": step,
        "gru": partial(recurrent, "GRU"),
        "lstm": partial(recurrent, "LSTM"),
        **{f"hf_{name}": partial(of_transformers, name) for name in TRANSFORMERS.split()},
        **{f"timm_{name}": partial(of_timm, name, size) for size, names in TIMM.items() for name in names.split()},
    }


def to_onnx(make: Network, path: Path) -> None:
    """Write a network by PyTorch's older exporter, or by its newer one where that fails."""
    import torch

    module, fed = make()
    names = [f"x{place}" if place else "x" for place in range(len(fed))]
    try:
        torch.onnx.export(module, fed, str(path), dynamo=False, opset_version=17, input_names=names)
    except Exception:  # of any kind: it is another's exporter
        torch.onnx.export(module, fed, str(path), dynamo=True, input_names=names, external_data=False, verbose=False)


def by_litert_torch(make: Network, path: Path) -> None:
    """Write a network by litert-torch, with ids of int32."""
    import litert_torch
    import torch

    module, fed = make()
    fed = tuple(each.to(torch.int32) if each.dtype == torch.int64 else each for each in fed)
    litert_torch.convert(module, fed).export(str(path))


def by_onnx2tf(make: Network, path: Path) -> None:
    """Write the ONNX file beside it by onnx2tf."""
    import onnx2tf

    source = path.with_name(f"{path.name.split('.')[0]}.onnx")
    with tempfile.TemporaryDirectory() as scratch:
        onnx2tf.convert(input_onnx_file_path=str(source), output_folder_path=scratch, non_verbose=True)
        made = sorted(Path(scratch).glob("*_float32.tflite"))
        if not made:
            raise ValueError("no file")
        path.write_bytes(made[0].read_bytes())


WAYS = {
    "onnx": (to_onnx, ".onnx", ("torch", "timm", "transformers", "torchvision", "onnxscript")),
    "litert-torch": (by_litert_torch, ".litert-torch.tflite", ("litert_torch", "timm", "transformers")),
    "onnx2tf": (by_onnx2tf, ".onnx2tf.tflite", ("onnx2tf",)),
}
"""Way -> what writes a file, the end of its name, and what is imported before."""


def write(way: str, make: Network, path: Path) -> str:
    """Write one file in a child process; return why there is none."""
    log = path.with_suffix(".txt")
    pid = os.fork()
    if not pid:
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
        code = 1
        try:
            handle = os.open(os.devnull, os.O_WRONLY)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            if way != "onnx2tf":
                import torch

                torch.manual_seed(SEED)
                torch.set_num_threads(1)
            WAYS[way][0](make, path)
            code = 0
        except BaseException as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            log.write_text(f"{type(error).__name__}: {lines[0] if lines else ''}"[:200])
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status and not log.exists():
        log.write_text("too late" if status == -signal.SIGPROF else f"it ends its process: {status}")
    if status:
        path.unlink(missing_ok=True)
    return log.read_text() if status else ""


def main(way: str, folder: str, *names: str) -> None:
    warnings.filterwarnings("ignore")
    _, end, imports = WAYS[way]
    for name in imports:
        __import__(name)
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    every = networks()
    for name in names or every:
        path = out / f"{name}{end}"
        if path.exists() or (not names and path.with_suffix(".txt").exists()):
            continue
        reason = write(way, every[name], path)
        print(f"{path.name}: {reason or f'{path.stat().st_size / 1e6:.1f} MB'}", flush=True)


def chosen(arguments: Sequence[str]) -> None:
    """Run the command line."""
    if len(arguments) < 2 or arguments[0] not in WAYS:
        sys.exit(__doc__)
    main(*arguments)


if __name__ == "__main__":
    chosen(sys.argv[1:])
