"""Write `.tflite` files: the container alone, from the values that the verified reader gives.

`writer` makes the file, and holds what is read back against what was written. `versions` knows what each
operator asks of a runtime, `runtimes` which runtime has it. `model` has constants that are streamed, `metadata`
what relayout says in a file for itself.
"""
