"""The processes of a run: fronts, and stand-ins for TF Serving. All on loopback, and all ended at the end."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.stand_in.copying import copy_version
from tests.stand_in.process import StandIn, running_stand_in

_MODEL_NAME = "rewriter"
_START_SECONDS = 300.0
_SERVES = " INFO serving.server serving\n"


class Front:
    """``log`` is what it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, log: list[str]) -> None:
        self.process = process
        self.address = address
        self.log = log

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        return kilobytes / 1024

    async def wait_until_it_serves(self) -> None:
        """By its log: where fronts share a port, any of them answers a call. Raises RuntimeError if it has ended."""
        async with asyncio.timeout(_START_SECONDS):
            while not any(line.endswith(_SERVES) for line in tuple(self.log)):
                if self.process.poll() is not None:
                    raise RuntimeError("the front did not come to serve:\n" + "".join(self.log))
                await asyncio.sleep(0.05)

    async def stop(self) -> int:
        """SIGTERM; returns the status that it ends with."""
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait)


def start_front(model_dir: Path, settings: Mapping[str, Any], port: int = 0) -> Front:
    """``settings`` by the path of their keys. Raises RuntimeError with its own words if it does not start."""
    command = [sys.executable, "-m", "rewriter", "serve", "--model-dir", str(model_dir), "--port", str(port)]
    for key, value in {"metrics.port": 0, **settings}.items():
        command += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    log: list[str] = []
    while line := process.stderr.readline():
        log.append(line)
        if found := re.search(r"listening on ([^\s\"]+)", line):
            threading.Thread(target=_keep, args=(process.stderr, log), daemon=True).start()
            return Front(process, found[1], log)
    process.wait()
    raise RuntimeError("the front did not start:\n" + "".join(log))


@asynccontextmanager
async def fronts(model_dir: Path, settings: Mapping[str, Any], count: int = 1) -> AsyncIterator[list[Front]]:
    """Each of them serves, on one port; those that still run are killed at the end."""
    started: list[Front] = []
    try:
        for _ in range(count):
            port = int(started[0].address.rpartition(":")[2]) if started else 0
            shared = {"reuse_port": True} if count > 1 else {}
            started.append(await asyncio.to_thread(start_front, model_dir, {**settings, **shared}, port))
        for front in started:
            await front.wait_until_it_serves()
        yield started
    finally:
        for front in started:
            front.process.kill()
            front.process.wait()


class Server:
    """A stand-in that can be killed and started anew on its port. It serves all versions in the folder, by label."""

    def __init__(self, model_dir: Path, folder: Path) -> None:
        self._model_dir = model_dir
        self._config = folder / f"models-{id(self)}.config"
        self._stable = 1
        self._running: AbstractContextManager[StandIn] | None = None
        self._stand_in: StandIn | None = None
        self._port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        if self._running is not None:
            return
        self._config.write_text(_config(self._model_dir, self._stable), encoding="utf-8")
        self._running = running_stand_in(
            self._model_dir,
            f"--port={self._port}",
            f"--model_config_file={self._config}",
            "--allow_version_labels_for_unavailable_models=true",
            model_name=_MODEL_NAME,
        )
        self._stand_in = self._running.__enter__()
        self._port = int(self._stand_in.address.rpartition(":")[2])

    def order(self, **order: Any) -> None:
        assert self._stand_in is not None
        self._stand_in.order(**order)

    def move_label(self, version: int) -> None:
        self._stable = version
        self.order(label="stable", version=version)

    def kill(self) -> None:
        if self._running is not None and self._stand_in is not None:
            self._stand_in.kill()
            self._running.__exit__(None, None, None)
        self._running = self._stand_in = None


def add_version(model_dir: Path, number: int) -> None:
    """Version 1 under another number, there all at once."""
    partial = model_dir.parent / "partial" / str(number)
    copy_version(model_dir / "1", partial)
    partial.rename(model_dir / str(number))


def write_tiny_model(model_dir: Path) -> None:
    """In another process: this one loads no TensorFlow."""
    program = (
        "import sys; from pathlib import Path; from saved_models import write_model; write_model(Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": "tests", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", program, str(model_dir)], check=True, env=environment)


def _config(model_dir: Path, stable: int) -> str:
    return (
        f'model_config_list {{ config {{ name: "{_MODEL_NAME}" base_path: "{model_dir}" model_platform: "tensorflow" '
        f'model_version_policy {{ all {{}} }} version_labels {{ key: "stable" value: {stable} }} }} }}'
    )


def _keep(lines: Any, log: list[str]) -> None:
    """The last few; a pipe that nobody reads would fill up and stop the front."""
    for line in lines:
        if " INFO serving.requests " not in line:
            log.append(line)
            del log[:-500]
