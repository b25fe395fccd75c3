"""``rewriter serve --workers``: real processes. Their model is out of reach, so they load no TensorFlow."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from saved_models import FEATURES, FINGERPRINT, VOCABULARY

from serving.answer import Outcome
from serving.artefact import Manifest, manifest_path
from serving.client import Rewriter

SECONDS = 250


class Service:
    """``log`` is what it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.log: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def wait_for(self, pattern: str, times: int = 1) -> list[str]:
        """What was found, in order."""
        deadline = time.monotonic() + SECONDS
        while len(found := re.findall(pattern, "".join(self.log))) < times:
            assert time.monotonic() < deadline, "".join(self.log)
            time.sleep(0.05)
        return found

    def pids(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"worker \d is process (\d+)", "".join(self.log))]


@contextmanager
def serving(model_dir: Path, config: Path) -> Iterator[Service]:
    command = [sys.executable, "-m", "rewriter", "serve", "--workers", "2", "--port", "0", "--config", str(config)]
    environment = {**os.environ, "REWRITER_MODEL_DIR": str(model_dir), "REWRITER_METRICS__PORT": "0"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield Service(process)
        finally:
            process.terminate()
            process.wait(SECONDS)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "rewriter.toml"
    path.write_text('backend = "tf_serving"\n[tf_serving]\naddresses = ["127.0.0.1:9"]\n', encoding="utf-8")
    return path


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """The words of a model, without the model."""
    version_dir = tmp_path / "models/1"
    assets = manifest_path(version_dir).parent
    assets.mkdir(parents=True)
    VOCABULARY.save(assets)
    FEATURES.save(assets / "features.json")
    manifest = Manifest(
        name="far",
        version="1",
        fingerprint=FINGERPRINT,
        vocabulary_fingerprint=VOCABULARY.fingerprint,
        length_buckets=(272,),
        batch_sizes=(1,),
    )
    manifest_path(version_dir).write_text(manifest.model_dump_json(), encoding="utf-8")
    return version_dir.parent


def passed_through(address: str, turns: int) -> None:
    """A connection for each turn, so that both workers get some."""
    for _ in range(turns):
        with Rewriter(address, timeout_seconds=SECONDS) as rewriter:
            answer = rewriter.rewrite(["西安今天的天气怎么样"], "明天有雨吗")
        assert (answer.text, answer.outcome) == ("明天有雨吗", Outcome.PASSTHROUGH)


def metric(address: str, name: str) -> float:
    with urllib.request.urlopen(address) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}[{{ ]", line))


def test_workers_share_a_port_are_restarted_reload_and_end_together(model_dir: Path, config: Path) -> None:
    with serving(model_dir, config) as service:
        [address, *_] = service.wait_for(r"listening on (\S+)", times=2)
        [metrics] = service.wait_for(r"metrics on (\S+)")
        passed_through(address, 8)
        assert metric(metrics, "rewriter_turns_total") == 8
        assert metric(metrics, "rewriter_workers") == 2

        os.kill(service.pids()[0], signal.SIGKILL)
        service.wait_for(r"listening on (\S+)", times=3)
        passed_through(address, 8)
        assert (metric(metrics, "rewriter_turns_total"), metric(metrics, "rewriter_worker_ends_total")) == (16, 1)

        config.write_text(config.read_text() + '[log]\nlevel = "ERROR"\n[tracing]\nsample_ratio = 1\n')
        service.process.send_signal(signal.SIGHUP)
        service.wait_for("changed log.level", times=2)
        service.wait_for("restart only: tracing.sample_ratio", times=2)

        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(SECONDS) == 0
        service.wait_for("ended with status 0", times=2)
        for pid in service.pids():
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_workers_end_when_the_process_that_looks_after_them_is_gone(model_dir: Path, config: Path) -> None:
    with serving(model_dir, config) as service:
        service.wait_for(r"listening on (\S+)", times=2)
        service.process.kill()
        service.process.wait()
        deadline = time.monotonic() + SECONDS
        while any(_runs(pid) for pid in service.pids()):
            assert time.monotonic() < deadline, "".join(service.log)
            time.sleep(0.05)


def test_settings_that_cannot_be_used_end_it_with_status_2(model_dir: Path, config: Path) -> None:
    manifest_path(model_dir / "1").unlink()
    with serving(model_dir, config) as service:
        assert service.process.wait(SECONDS) == 2


def _runs(pid: int) -> bool:
    """Of a process whose parent is gone: nobody may have noticed its end."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
