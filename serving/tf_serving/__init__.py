"""TF Serving as a backend: the model runs elsewhere, the front keeps the words. No TensorFlow is loaded here.

1. ``settings``   what the operator says; ``backend`` makes the rest from it.
2. ``address``    the backend for one address; ``serving.resilience.pool`` makes one of several.
3. ``routes``     stable or canary, by the id of a conversation.
4. ``watching``   which versions a server has, and whether they are ours; ``catalogue`` the versions on shared storage,
                  ``fitting`` the comparison.
5. ``batches``    turns of one length together; ``buckets`` the sizes they are padded to, and TF Serving's file.
6. ``endpoint``   the calls; ``tensors`` arrays as messages, ``statuses`` what errors mean.

A request is made for the version that was last seen, and asks for the label or the newest. If another version answers,
the answer counts if both read the same arrays; else the request is made anew. So a version can be replaced, or a label
moved, under load. A new version must be in the front's ``model_dir`` before it is served.

``python -m serving.tf_serving MODEL_DIR`` prints the batching file for the newest version.
"""
