"""Quantize a file for another process, by `isolation/frames.py`: LiteRT ends its own over some models and samples."""

from __future__ import annotations

import logging
import shutil
from importlib import import_module
from typing import Any


def answer(kind: str, *arguments: Any) -> tuple[str, Any]:
    """Return what an error says, empty where there is none, and the answer to a question."""
    try:
        return "", getattr(JOB, kind)(*arguments)
    except Exception as error:  # the quantizer has no errors of its own
        return f"{type(error).__name__}: {' '.join(str(error).split())}", None


class Job:
    """One file that is quantized."""

    def begin(
        self,
        path: str,  # the file
        recipe: list[Any],  # what becomes of each operator
        key: str,  # of the signature that samples are fed to
        is_calibrated: bool,  # True if samples follow
        threads: int,  # of LiteRT, which runs them
    ) -> None:
        """Load a float file."""
        logging.disable(logging.WARNING)
        self.path, self.recipe, self.key = path, recipe, key
        self.last: dict[str, Any] = {}
        self.calibrator: Any = None
        if is_calibrated:
            calibrator = import_module("ai_edge_quantizer.calibrator")
            self.manager = import_module("ai_edge_quantizer.recipe_manager").RecipeManager()
            self.manager.load_quantization_recipe(recipe)
            with open(path, "rb") as file:
                content = file.read()
            # By default the quantizer takes a moving average, which after a few samples is the first one's range.
            widest = import_module("ai_edge_quantizer.utils.qsv_utils").min_max_update
            self.calibrator = calibrator.Calibrator(content, num_threads=threads, qsv_update_func=widest)

    def sample(self, fed: dict[str, Any]) -> None:
        """Run the float model on a sample, and note the range of each value."""
        self.last = fed
        self.calibrator.calibrate({self.key: [fed]}, self.manager)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Return tensor -> the least and the greatest number of all samples."""
        np = import_module("numpy")
        values = {} if self.calibrator is None else self.calibrator.get_model_qsvs()
        return {
            name: (float(np.min(value["min"])), float(np.max(value["max"])))
            for name, value in values.items()
            if value and np.size(value.get("min"))
        }

    def finish(self, result: str, limits: dict[str, tuple[float, float]], rows: list[Any]) -> None:
        """Write the quantized file, and run it on the last sample.

        Args:
            result: where to.
            limits: tensor -> the range that it has whatever the samples say.
            rows: more rows of the recipe, chosen by what the samples have shown.
        """
        values = {} if self.calibrator is None else self.calibrator.get_model_qsvs()
        np = import_module("numpy")
        # A value that is always 0 has steps so small that kernels refuse to rescale to them: 0 has any others, too.
        zeros = [name for name, value in values.items() if not (value["min"].any() or value["max"].any())]
        for name, ends in (dict.fromkeys(zeros, (0.0, 1.0)) | limits).items():
            if name in values:
                low, high = (np.full_like(values[name]["min"], end) for end in ends)
                values[name] = {**values[name], "min": low, "max": high}
        if self.calibrator is not None and not values:  # it has integers for none of the operators, and says no more
            shutil.copyfile(self.path, result)
            return
        quantizer = import_module("ai_edge_quantizer.quantizer").Quantizer(self.path, [*self.recipe, *rows])
        quantized = quantizer.quantize(
            values if self.calibrator is not None else None, enable_progress_bar=False, enable_progress_report=False
        )
        with open(result, "wb") as file:
            file.write(quantized.quantized_model)
        if self.last:
            # LiteRT must load the quantized file.
            utilities = import_module("ai_edge_quantizer.utils.tfl_interpreter_utils")
            interpreter = import_module("ai_edge_litert.interpreter").Interpreter(result, num_threads=1)
            utilities.invoke_interpreter_signature(interpreter, self.last, self.key)


JOB = Job()
