"""A stand-in for ``tensorflow_model_server``, for machines without Docker. It is not TF Serving.

It serves SavedModels over a real socket, in a process of its own, by the runtime that TF Serving uses (a session on the
graph), and answers on the wire as TF Serving's sources say that it answers: statuses, messages, versions, labels,
batching. It cannot prove anything about speed, memory, GPUs, or timing within the C++ batcher; docs/conformance.md says
how to run the same tests on the real image.

1. ``flags``     the flags, named as TF Serving's; those of our own start with ``--stand_in``.
2. ``versions``  loads what the folder holds, and unloads what it should not; labels.
3. ``servable``  one loaded version. ``batching`` puts requests together, if told to.
4. ``predicting`` a request for a servable: what is checked, in which order, with which message.
5. ``services``  the two gRPC services.
6. ``faults``    what can be made to go wrong, by ``control``: a second port, with JSON.
7. ``process``   starts a stand-in for a test.

``python -m tests.stand_in --model_base_path DIR --port 8500`` from the root of the repository.
"""
