"""A server process that a supervisor started: ``python -m serving.processes.worker SOURCES``, with JSON."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from serving import settings
from serving.server import ModelStuck, run


def main(sources: str) -> int:
    """Serves until told to stop, or until the supervisor is gone. Returns the status to end with."""
    # Until the service can read its settings anew: they are read now.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    found = json.loads(sources)
    config_file = Path(found["config"]) if found["config"] else None
    # The supervisor answers Prometheus for all workers.
    flags = {**found["flags"], "reuse_port": True, "metrics.enabled": False}
    threading.Thread(target=_end_with_the_supervisor, daemon=True).start()
    try:
        loaded = settings.load(flags, config_file).settings
        run(loaded, lambda: settings.load(flags, config_file).settings, end_when_stuck=True)
    except ModelStuck as error:
        print(f"rewriter: {error}", file=sys.stderr)
        return 1
    except (ValueError, OSError, RuntimeError) as error:
        print(f"rewriter: {error}", file=sys.stderr)
        return 2
    return 0


def _end_with_the_supervisor() -> None:
    """Nothing is ever written to the pipe: it ends with whoever holds the other end."""
    # Not through sys.stdin, whose lock would be held when the interpreter wants to close it.
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
