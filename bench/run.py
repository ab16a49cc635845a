"""The whole benchmark in one command: make or find the models, run relayout and its peers, write tables and plots.

    python bench/run.py [--environments FILE.toml] [--python NAME=PATH ...] [--parts PART,...] [--quick] [--out FOLDER]

Peers live in environments of their own, each found by a Python:

    [pythons]
    relayout = "venv/bin/python"         # relayout[verify]; by default the Python that runs this
    tensorflow = "tf/bin/python"         # tensorflow-cpu, tf_keras, tf2onnx, tflite2onnx
    litert = "litert/bin/python"         # litert-torch, torch, transformers
    jax = "jax/bin/python"               # jax2onnx, flax, equinox, onnxruntime
    onnx2tf = "onnx2tf/bin/python"       # onnx2tf[tensorflow]; its sources are exported by `torch`
    torch = "torch/bin/python"           # torch, transformers, onnxslim, onnxsim, onnxscript, onnxruntime
    openvino = "openvino/bin/python"     # openvino, onnx, onnxruntime
    tvm = "tvm/bin/python"               # apache-tvm, onnx
    plots = "plots/bin/python"           # matplotlib

    [models]                             # files and folders; what is not given is made, with fixed seeds
    tflite = ["models"]
    onnx = ["exports"]
    latency = ["latency"]

An environment that is not given is left out, with all that it would run, and the page says so. FOLDER gets a folder
for every part with all of its figures, `benchmark.md`, `benchmark.json`, and the plots. A set of models that was made
there is found again, and so are the parts of an earlier run: those in `--parts` are run, the others stay on the page.
`--quick` takes the shipped models and few repeats: it shows that everything runs, no figures. `figures.py FOLDER
--write` puts the table of a whole run into docs/measured.md.

This file imports nothing heavy: a child's peak memory counts from what its parent held.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures
from processes import ENVIRONMENT, HERE, versions
from tables import table

SHIPPED = HERE.parent / "models"
PEERS = {
    "relayout": ("relayout", "onnx", "onnx-ir", "onnxruntime", "ai-edge-litert", "numpy", "highspy"),
    "tensorflow": ("tensorflow-cpu", "tf2onnx", "tflite2onnx"),
    "litert": ("litert-torch", "ai-edge-quantizer", "torch"),
    "jax": ("jax2onnx", "jax", "flax", "equinox"),
    "onnx2tf": ("onnx2tf", "tensorflow", "onnxsim"),
    "torch": ("torch", "onnxslim", "onnxsim", "onnxscript"),
    "openvino": ("openvino",),
    "tvm": ("apache-tvm",),
    "plots": ("matplotlib",),
}
"""Environment -> what is measured of it, or measures."""


@dataclass(frozen=True)
class Part:
    """A script that measures one thing.

    Args:
        title: its heading.
        models: which set of models it takes, if any.
        peers: environment -> the option that takes its Python.
        full: its options in a whole run.
        quick: its options in a quick one.
    """

    title: str
    models: str = ""
    peers: dict[str, str] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


PARTS = {
    "starting": Part("Before anything is computed", peers={"tensorflow": "--peers"}, quick=("--repeats", "2")),
    "conversion": Part("TensorFlow Lite to ONNX", "tflite", {"tensorflow": "--peers"}, ("--twice",), ("--fork",)),
    "latency": Part(
        "Latency of results", "latency", {"tensorflow": "--peers"}, quick=("--rounds", "2", "--threads", "1")
    ),
    "optimizing": Part(
        "Optimizing ONNX",
        "onnx",
        {"torch": "--peers", "openvino": "--openvino"},
        quick=("--repeats", "1", "--seconds", "0.01"),
    ),
    "claiming": Part("What a target's claims leave", "onnx", {"tvm": "--tvm"}),
    "scale": Part("Growth", quick=("--sizes", "60,120", "--gigabytes", "", "--orders", "2")),
    "throughput": Part(
        "Many models at once", "tflite", {"tensorflow": "--peers"}, quick=("--count", "4", "--peer-count", "2")
    ),
}

Command = tuple[str, str, tuple[str, ...]]
"""Environment, script of this folder, arguments; `{set}` is the folder of the set."""
MADE: dict[str, tuple[Command, ...]] = {
    "tflite": (
        ("tensorflow", "make_keras.py", ("{set}",)),
        ("tensorflow", "make_resnet50.py", ("{set}/resnet50.tflite",)),
        ("litert", "make_litert_torch.py", ("{set}/litert_torch",)),
        ("torch", "make_onnx.py", ("torch", "{set}/exports")),
        ("onnx2tf", "make_onnx2tf.py", ("{set}/exports", "{set}/onnx2tf")),
    ),
    "latency": (("tensorflow", "latency_models.py", ("{set}",)),),
    "onnx": (
        ("torch", "make_onnx.py", ("torch", "{set}")),
        ("torch", "make_onnx.py", ("light", "{set}")),
        ("tensorflow", "make_onnx.py", ("keras", "{set}")),
        ("torch", "make_onnx.py", ("lively", "{set}")),
        ("torch", "make_onnx.py", ("quantized", "{set}")),
        ("jax", "make_jax.py", ("{set}",)),
    ),
}
QUICK = {"tflite": ["tinynet_float.tflite", "tinynet_int8.tflite"], "latency": ["tinynet_int8.tflite"]}
"""What a quick run takes of the shipped models."""


def made(name: str, folder: Path, pythons: dict[str, str]) -> list[Path]:
    """The set of models in `folder`, made where it is not there; commands whose environment is missing are left out."""
    log = folder / "made.json"
    done = json.loads(log.read_text(encoding="utf-8")) if log.exists() else []
    folder.mkdir(parents=True, exist_ok=True)
    for python, script, given in MADE[name]:
        arguments = [each.format(set=folder) for each in given]
        if python in pythons and [script, *given] not in done:
            say(f"models {name}: {script} {' '.join(arguments)}")
            subprocess.run([pythons[python], str(HERE / script), *arguments], env=ENVIRONMENT, check=True)
            done.append([script, *given])
            log.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    return [SHIPPED, folder] if name == "tflite" else [folder]


def small_onnx(path: Path, python: str) -> Path:
    """A graph that needs no exporter."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import onnx, scale; "
    code += "onnx.save(scale.residual_network(60), sys.argv[2])"
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([python, "-c", code, str(HERE), str(path)], env=ENVIRONMENT, check=True)
    return path


def models_of(
    name: str, options: argparse.Namespace, given: dict[str, list[str]], pythons: dict[str, str]
) -> list[str]:
    if not name:
        return []
    if name in given:
        return [str(Path(path).expanduser()) for path in given[name]]
    if options.quick and name == "onnx":
        return [str(small_onnx(options.out.absolute() / "models" / "residual.onnx", pythons["relayout"]))]
    if options.quick:
        return [str(SHIPPED / file) for file in QUICK[name]]
    return list(map(str, made(name, options.out.absolute() / "models" / name, pythons)))


def command_of(name: str, pythons: dict[str, str], models: list[str], out: Path, quick: bool) -> list[str]:
    part = PARTS[name]
    peers = [word for peer, option in part.peers.items() if peer in pythons for word in (option, pythons[peer])]
    options = part.quick if quick else part.full
    return [pythons["relayout"], str(HERE / f"{name}.py"), *models, *peers, *options, "--out", str(out / name)]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def page(parts: dict[str, dict[str, Any]], used: dict[str, dict[str, str]], out: Path, plots: list[str]) -> str:
    """All summaries, with what they were made by."""
    rows = [[name, ", ".join(f"{k} {v}" for k, v in used[name].items()) or "left out"] for name in PEERS]
    lines = ["# Benchmark", table(["environment", "versions"], rows, 2)]
    lines.append(figures.shown(figures.figures(out)))
    lines += [f"![{plot}]({plot}.svg)" for plot in plots]
    for name, part in parts.items():
        lines += [f"## {PARTS[name].title}", f"`{part['command']}`"]
        summary = out / name / "summary.md"
        lines.append(
            summary.read_text(encoding="utf-8").strip() if not part["code"] else f"Failed: exit {part['code']}."
        )
    return "\n\n".join(lines) + "\n"


def shown(command: list[str]) -> str:
    """A command without this machine's paths."""
    words = [f"bench/{Path(word).name}" if word.startswith(str(HERE)) else word for word in command]
    return " ".join(Path(word).name if word.startswith("/") else word for word in words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    told = tomllib.loads(options.environments.read_text(encoding="utf-8")) if options.environments else {}
    pythons = {"relayout": sys.executable} | told.get("pythons", {})
    pythons |= dict(item.split("=", 1) for item in options.python)
    pythons = {name: os.path.expanduser(path) for name, path in pythons.items()}
    wanted = [name for name in options.parts.split(",") if name]
    for what, given, there in (("part", wanted, PARTS), ("environment", pythons, PEERS)):
        for name in given:
            if name not in there:
                parser.error(f"no {what} {name!r}; there are {', '.join(there)}")
    options.out.mkdir(parents=True, exist_ok=True)
    used = {name: versions(pythons[name], *packages) if name in pythons else {} for name, packages in PEERS.items()}
    for name, found in used.items():
        say(f"{name}: {', '.join(f'{k} {v}' for k, v in found.items()) or 'left out'}")
    ran: dict[str, dict[str, Any]] = {}
    for name in wanted:
        models = models_of(PARTS[name].models, options, told.get("models", {}), pythons)
        command = command_of(name, pythons, models, options.out, options.quick)
        say(f"\n{name}: {shown(command)}")
        ran[name] = {"command": shown(command), "code": subprocess.run(command, env=ENVIRONMENT).returncode}
    whole = options.out / "benchmark.json"  # read at the end: other parts may have run beside these
    known = json.loads(whole.read_text(encoding="utf-8")) if whole.exists() else {"versions": {}, "parts": {}}
    used = {name: found or known["versions"].get(name, {}) for name, found in used.items()}
    parts = {name: (known["parts"] | ran)[name] for name in PARTS if name in known["parts"] | ran}
    drawn = subprocess.run(
        [pythons.get("plots", sys.executable), str(HERE / "plots.py"), str(options.out)], capture_output=True, text=True
    )
    plots = drawn.stdout.split() if drawn.returncode == 0 else []
    text = page(parts, used, options.out, plots)
    whole.write_text(json.dumps({"versions": used, "parts": parts, "plots": plots}, indent=1) + "\n", encoding="utf-8")
    (options.out / "benchmark.md").write_text(text, encoding="utf-8")
    print(text)
    sys.exit(1 if any(part["code"] for part in parts.values()) else 0)


if __name__ == "__main__":
    main()
