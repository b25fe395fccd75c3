"""The front service and its client; one gRPC contract (``proto/rewriter/v1/rewriter.proto``) between them.

A request travels through the modules in this order:

1. ``client``        the caller's side, over a ``channel``, with ``credentials``; gets an ``answer``. ``conversion``
   knows the messages, ``asking`` makes one call for the command line.
2. ``server``        start, warm-up, health, stop, with the certificate of ``tls``.
3. ``interceptors``  ``access`` (``tokens``, ``rate_limits``), bytes to messages, exceptions to statuses by the table in
   ``errors``; a ``call`` is what ``logs``, ``metrics`` and ``tracing`` hear of it.
4. ``servicer``      converts, calls, converts; ``validation`` names what is wrong with a request; ``streams``.
5. ``rewriting``     the use case: conversation -> answer, and when to pass the original turn through.
6. ``backends``      puts the guards of ``resilience`` around who runs the model (``backend``): ``embedded``, this
   process, in batches made by ``batching``; or ``tf_serving``. ``artefact`` finds and reads a model on disk,
   ``signatures`` reads what it answers.

Around all this: ``health``, ``draining``, ``watching`` and ``reloading``, the ``log_writer``, the ``model_thread``,
what ``metrics`` leaves to ``batch_metrics`` and ``resilience_metrics``; and ``processes``, several servers on one port.
``local`` runs a service for benchmarks and demos, ``generate`` writes the code of the contract.

Settings: ``config`` is their tree, ``settings`` reads it from file, environment and flags, ``settings_keys`` has its
words, ``reference`` writes docs/settings.md, ``check_config`` looks before a start.

The client needs gRPC and protobuf and nothing else. The server never needs Keras, and TensorFlow only for ``embedded``.
"""
