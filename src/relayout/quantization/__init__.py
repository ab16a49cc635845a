"""A float `.tflite` quantized by Google's ai-edge-quantizer: the request, samples, the engine, what stayed float."""
