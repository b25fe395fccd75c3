"""The service in a process of its own, on a free port of this machine: for demonstrations, benchmarks and tests."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LocalService:
    """``log`` is what the service has written to standard error so far."""

    address: str
    pid: int
    log: list[str]


@contextmanager
def running_service(model_dir: Path, environment: Mapping[str, str] | None = None) -> Iterator[LocalService]:
    """Starts a service and stops it with SIGTERM, as an operator would; it listens, but may not be warm yet.

    Raises RuntimeError with the service's own words if it does not start.
    """
    command = [sys.executable, "-m", "rewriter", "serve", "--model-dir", str(model_dir), "--port", "0"]
    command += ["--set", "metrics.port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        log: list[str] = []
        try:
            address = None
            while address is None and (line := server.stderr.readline()):
                log.append(line)
                found = re.search(r"listening on ([^\s\"]+)", line)
                address = found and found.group(1)
            if address is None:
                raise RuntimeError("the service did not start:\n" + "".join(log))
            # A pipe that nobody reads would fill up and stop the service.
            threading.Thread(target=log.extend, args=(server.stderr,), daemon=True).start()
            yield LocalService(address, server.pid, log)
        finally:
            server.terminate()
            server.wait()
