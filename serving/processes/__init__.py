"""Several server processes on one port, and one that looks after them: ``rewriter serve --workers N``.

``supervisor`` starts the workers, starts those anew that end (``restarts`` says when), and passes signals on;
``metrics`` adds up what they measure; ``worker`` is what it starts, ``run`` puts all this together. The supervisor
loads neither TensorFlow nor gRPC: what it does not load cannot fail in it, and a process is started, not forked, so
that a worker inherits no state of either.

The system hands each new connection to one of the workers (SO_REUSEPORT), so clients have to open new ones now and then
(``max_connection_age_seconds``).
"""
