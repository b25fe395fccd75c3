"""Starts a stand-in for a test, and orders faults. Loads no TensorFlow itself."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

REPOSITORY = Path(__file__).parent.parent.parent


class Control:
    """Orders what ``control`` describes, from a stand-in whose control port is at ``address``."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)

    def order(self, **order: Any) -> Any:
        """Raises grpc.RpcError if it is refused."""
        call = self._channel.unary_unary("/stand_in.Control/Order")
        return json.loads(call(json.dumps(order).encode(), timeout=60))

    def close(self) -> None:
        self._channel.close()


class StandIn(Control):
    """A running one; ``address`` speaks TF Serving's protocol."""

    def __init__(self, address: str, control: str, process: "subprocess.Popen[str]", log: list[str]) -> None:
        super().__init__(control)
        self.address = address
        self.log = log
        self._process = process

    def kill(self) -> None:
        """As a machine that fails: no connection is closed in order."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running_stand_in(model_dir: Path, *flags: str, model_name: str = "rewriter") -> Iterator[StandIn]:
    """Raises RuntimeError with its own words if it does not start."""
    command = [sys.executable, "-m", "tests.stand_in", "--port=0", "--file_system_poll_wait_seconds=0"]
    command += [f"--model_name={model_name}", f"--model_base_path={model_dir}", *flags]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=REPOSITORY, **pipes) as process:
        assert process.stdout is not None
        log: list[str] = []
        found = None
        try:
            while found is None and (line := process.stdout.readline()):
                log.append(line)
                found = re.search(r"listening on (\S+) control (\S+)", line)
            if found is None:
                raise RuntimeError("the stand-in did not start:\n" + "".join(log))
            # A pipe that nobody reads would fill up and stop it.
            threading.Thread(target=log.extend, args=(process.stdout,), daemon=True).start()
            stand_in = StandIn(found[1], found[2], process, log)
            yield stand_in
            stand_in.close()
        finally:
            # TensorFlow takes its time to end in order.
            process.kill()
            process.wait()
