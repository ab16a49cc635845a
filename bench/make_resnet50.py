"""Write ResNet50 with random weights as a float .tflite file of about 100 MB.

python -m venv tf && tf/bin/pip install tensorflow-cpu==2.19.0
tf/bin/python bench/make_resnet50.py OUT.tflite
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf


def main(out: Path) -> None:
    tf.keras.utils.set_random_seed(50)
    image = tf.keras.Input((224, 224, 3), 1, name="image")
    model = tf.keras.applications.ResNet50(weights=None, input_tensor=image)
    content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    out.write_bytes(content)
    print(f"{out}: {len(content) / 1e6:.1f} MB, TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
