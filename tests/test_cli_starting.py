"""What the process of a command leaves unloaded, and that whoever uses relayout as a library sees none of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import relayout
from relayout.cli import entry
from relayout.cli.entry import MODULES, main
from relayout.cli.starting import DEFERRED, THREADS

MODEL = Path(__file__).parents[1] / "models" / "tinynet_float.tflite"
RUN = """
import sys
from relayout.cli import main
sys.argv = ["relayout", *sys.argv[1:]]
main()
"""
HEAVY = """
heavy = 'sympy.core', 'onnxruntime', 'scipy', 'ai_edge_litert', 'multiprocessing', '_hashlib', 'rich', 'highspy'
heavy += 'email.message',
print([name for name in heavy if name in sys.modules])
"""


LATER = """
later = 'reports.chart', 'reports.reasons', 'reports.inspection', 'solve.decomposition'
later += 'lowering.recognise_recurrent', 'lowering.quantized_units', 'targets.target_table'
later += 'partition.regions', 'infer.what_if', 'rules.recurrent', 'formats.tflite.container.writer'
later += 'targets.litert.exported_graph',
print([name for name in later if f'relayout.{name}' in sys.modules])
formats = 'tflite.importing.importer', 'onnx.reading', 'onnx.completing'
print([name for name in formats if f'relayout.formats.{name}' in sys.modules])
"""


def said(code: str, *arguments: str | Path) -> str:
    # Without `env` a child has what readline, which pytest loads, says of the terminal: COLUMNS.
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("printed", [(), ("--json",)], ids=["tables", "json"])
def test_a_conversion_loads_nothing_that_it_does_not_need(printed: tuple[str, ...], tmp_path: Path) -> None:
    output = said(RUN + HEAVY, "convert", *printed, MODEL, tmp_path / "out.onnx")
    assert output.splitlines()[-1] == "[]"
    assert (tmp_path / "out.onnx").stat().st_size > 0


def test_what_only_some_look_at_is_loaded_where_they_do(tmp_path: Path) -> None:
    """Charts and reasons, what a loop's rounds compute, and of the two formats what reads the other."""
    target = tmp_path / "out.onnx"
    tflite, onnx = "['tflite.importing.importer']", "['onnx.reading', 'onnx.completing']"
    assert said(RUN + LATER, "convert", "--quiet", MODEL, target).split("\n")[:2] == ["[]", tflite]
    assert said(RUN + LATER, "optimize", "--quiet", target, tmp_path / "again.onnx").split("\n")[:2] == ["[]", onnx]


def test_the_types_of_fields_are_no_text() -> None:
    """`from __future__ import annotations` makes texts of them, and `NamedTuple` compiles each as its module loads."""
    texts = {path: path.read_text(encoding="utf-8") for path in Path(relayout.__file__).parent.rglob("*.py")}
    tuples = [path for path, text in texts.items() if "(NamedTuple)" in text]
    assert len(tuples) > 100
    assert [path for path in tuples if "from __future__ import annotations" in texts[path]] == []


def test_other_verbs_are_not_loaded(tmp_path: Path) -> None:
    verbs = f"print([name for name in {MODULES} if f'relayout.cli.{{name}}' in sys.modules])"
    assert said(RUN + verbs, "convert", "--quiet", MODEL, tmp_path / "out.onnx") == "['convert']\n"


def test_every_module_with_a_verb_is_named() -> None:
    """Each has one command, of the module's own name."""
    names = sorted(
        path.stem for path in Path(entry.__file__).parent.glob("*.py") if "@click.command" in path.read_text("utf-8")
    )
    assert names == sorted(MODULES) == sorted(entry.cli.every_command().keys() - {"help"})
    assert all(name == command.name for name, command in entry.cli.every_command().items())


def test_operators_of_other_families_are_not_loaded(tmp_path: Path) -> None:
    """Of the importer's modules those that a model's operators are in, and no others that these do not need."""
    families = "print([name.rpartition('.')[2] for name in sys.modules if '.importing.operators.' in name])"
    loaded = said(RUN + families, "convert", "--quiet", MODEL, tmp_path / "out.onnx")
    assert "'convolution'" in loaded
    assert not any(f"'{name}'" in loaded for name in ("complexes", "custom", "lstm", "stablehlo", "tensorflow"))


def test_only_the_version_of_a_package_is_looked_up(tmp_path: Path) -> None:
    """onnx asks for its own; whoever asks for more has the whole module, and whoever imports it later."""
    asked = """
import importlib.metadata, onnx
print(onnx.__version__, 'email.message' in sys.modules)
early = importlib.metadata.version
print(importlib.metadata.version('numpy'), 'email.message' in sys.modules)
print(importlib.metadata.metadata('onnx')['Version'], 'email.message' in sys.modules)
from importlib.metadata import PackageNotFoundError
for ask in (early, importlib.metadata.version):
    try:
        ask('no-such-package')
    except PackageNotFoundError as error:
        print(error.name)
"""
    told = said(RUN + asked, "convert", "--quiet", MODEL, tmp_path / "out.onnx").split()
    own, numpys = version("onnx"), version("numpy")
    assert told == [own, "False", numpys, "False", own, "True", *["no-such-package"] * 2]


def test_symbolic_extents_can_still_be_reckoned_with(tmp_path: Path) -> None:
    reckoned = "import onnx_ir\nprint(onnx_ir.SymbolicDim('batch') * 2, 'sympy.core' in sys.modules)"
    assert said(RUN + reckoned, "convert", "--json", MODEL, tmp_path / "out.onnx").splitlines()[-1] == "2*batch True"


def test_the_library_loads_what_it_imports() -> None:
    assert "sympy.core" in said(f"import sys, relayout.pipeline\n{HEAVY}")


def test_every_deferred_module_is_one_that_is_imported() -> None:
    """Else the saving is gone, and nobody is told. Newer versions of Python import fewer of their own modules."""
    oldest = sys.version_info < (3, 12)
    names = [name for name in DEFERRED if oldest or name not in sys.stdlib_module_names]
    code = "import sys, onnx_ir\nprint(all(name in sys.modules for name in sys.argv[1:]))"
    assert said(code, *names).strip() == "True"


def test_a_call_of_main_leaves_the_interpreter_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> tuple[object, ...]:
        return list(sys.meta_path), gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), dict(os.environ)

    before = state()
    monkeypatch.setattr(sys, "argv", ["relayout", "--version"])
    main()
    assert state() == before
    assert "relayout" in capsys.readouterr().out


@pytest.mark.parametrize("said_by_user", [None, "3"])
def test_numpy_starts_one_thread_unless_the_user_says_how_many(
    said_by_user: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if said_by_user is None:
        monkeypatch.delenv(THREADS, raising=False)
    else:
        monkeypatch.setenv(THREADS, said_by_user)
    hooked = f"""
import os, sys
from importlib.abc import MetaPathFinder
class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            print("numpy with", os.environ.get({THREADS!r}))
sys.meta_path.insert(0, Finder())
"""
    lines = said(hooked + RUN, "convert", "--json", MODEL, tmp_path / "out.onnx").splitlines()
    assert lines[0] == f"numpy with {said_by_user or 1}"
