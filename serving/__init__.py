"""The front service and its client; one gRPC contract (``proto/rewriter/v1/rewriter.proto``) between them.

A request travels through the modules in this order:

1. ``client``        the caller's side, over a ``channel``; gets an ``answer``. ``conversion`` knows the messages.
2. ``server``        start, warm-up, health, stop; ``config`` holds every setting.
3. ``interceptors``  one log line per call, exceptions to statuses by the table in ``errors``.
4. ``servicer``      converts, calls, converts; ``validation`` names what is wrong with a request; ``streams``.
5. ``rewriting``     the use case: conversation -> answer, and when to pass the original turn through.
6. ``backend``       who runs the model; ``embedded`` does so in this process, in batches made by ``batching``.
   ``artefact`` finds and reads a model on disk, ``signatures`` reads what it answers.

The client needs gRPC and protobuf and nothing else; the server needs TensorFlow but never Keras.
"""
