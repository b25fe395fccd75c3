"""Runs an exported model with TensorFlow alone: ``python -m rewriter.reload SAVED_MODEL INPUTS.npz OUTPUTS.npz``."""

import sys

import numpy as np
import tensorflow as tf


def main(saved_model: str, inputs: str, outputs: str) -> None:
    model = tf.saved_model.load(saved_model)
    with np.load(inputs) as stored:
        arrays = {name: tf.constant(stored[name]) for name in stored.files}
    found = {}
    for signature, function in model.signatures.items():
        for name, tensor in function(**arrays).items():
            found[f"{signature}/{name}"] = tensor.numpy()
    np.savez(outputs, allow_pickle=False, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
