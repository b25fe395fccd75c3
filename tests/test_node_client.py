"""The service as Node's gRPC library sees it, which knows the .proto and shares no code with ours."""

import asyncio
import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2
from saved_models import VOCABULARY, write_model

from serving.config import ServerSettings
from serving.generate import REPOSITORY
from serving.server import create

SOURCES = REPOSITORY / "tests/node"
INSTALLED = REPOSITORY / "build/node"
PROTO = REPOSITORY / "proto/rewriter/v1/rewriter.proto"
INSTALL_SECONDS = 120
NO_REGISTRY = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "ERR_SOCKET_TIMEOUT")


@pytest.fixture(scope="module")
def client() -> Path:
    """The client beside its packages, which are installed anew only when the lock file changes."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    complete = INSTALLED / "node_modules/.package-lock.json"  # what npm writes last
    lock = (SOURCES / "package-lock.json").read_bytes()
    copied_lock = INSTALLED / "package-lock.json"
    if not (complete.exists() and copied_lock.exists() and copied_lock.read_bytes() == lock):
        shutil.rmtree(INSTALLED / "node_modules", ignore_errors=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, INSTALLED)
        _install()
    return Path(shutil.copy(SOURCES / "client.mjs", INSTALLED))


def _install() -> None:
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0"]
    try:
        npm = subprocess.run(command, cwd=INSTALLED, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm ci did not end within {INSTALL_SECONDS} seconds")
    if npm.returncode and any(sign in npm.stderr for sign in NO_REGISTRY):
        pytest.skip("npm ci cannot reach its registry")
    assert npm.returncode == 0, npm.stderr


@pytest.fixture(scope="module")
def report(client: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the client saw of a server in this process."""
    model_dir = write_model(tmp_path_factory.mktemp("models"))

    async def serve_and_call() -> bytes:
        server = create(ServerSettings(model_dir=model_dir, port=0))
        target = f"127.0.0.1:{await server.start()}"
        await server.warm_up()
        node = await asyncio.create_subprocess_exec(
            "node", str(client), target, str(PROTO), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await node.communicate()
        await server.stop()
        assert node.returncode == 0, err.decode()
        return out

    return json.loads(asyncio.run(serve_and_call()))


def test_node_sees_a_healthy_service_with_its_model_and_limits(report: Any) -> None:
    assert report["health"]["status"] == "SERVING"
    info = report["info"]
    assert info["model"] == {
        "name": "first-word",
        "version": "1",
        "vocabulary_fingerprint": VOCABULARY.fingerprint,
    }
    assert (info["max_batch_items"], info["max_utterance_characters"]) == (64, 500)


def test_node_gets_a_rewrite_with_origins_and_alternatives(report: Any) -> None:
    city = report["city"]
    assert (city["text"], city["outcome"], city["request_id"]) == ("西安明天有雨吗", "OUTCOME_REWRITTEN", "city")
    assert city["pieces"] == ["西安", "明天有雨吗"]
    assert [(span["origin"], span["turn"]) for span in city["spans"]] == [
        ("ORIGIN_HISTORY", 0),
        ("ORIGIN_UTTERANCE", 1),
    ]
    assert city["confidence"] == pytest.approx(0.5)
    assert [alternative["text"] for alternative in city["alternatives"]] == ["明天有雨吗"]
    assert city["model"] == report["info"]["model"]


def test_offsets_fit_the_code_points_of_a_language_that_counts_utf16(report: Any) -> None:
    emoji = report["emoji"]
    assert emoji["text"] == "😀多少钱😀"
    assert emoji["pieces"] == ["😀", "多少钱😀"]
    assert [(span["source_start"], span["source_end"]) for span in emoji["spans"]] == [(0, 1), (0, 4)]


def test_a_turn_without_history_comes_back_to_node_as_it_was(report: Any) -> None:
    assert (report["alone"]["text"], report["alone"]["outcome"]) == ("今天几号", "OUTCOME_UNCHANGED")
    assert report["alone"]["confidence"] == 1


def test_node_finds_every_wrong_field_in_the_details_of_the_status(report: Any) -> None:
    bad = report["bad"]
    assert bad["code"] == "INVALID_ARGUMENT"
    status = status_pb2.Status.FromString(base64.b64decode(bad["status"]))
    assert (status.code, status.message) == (3, bad["details"])
    request = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(request)
    assert {violation.field: violation.description for violation in request.field_violations} == {
        "utterance": "expected a turn, found nothing",
        "max_alternatives": "expected 0 to 8, found -1",
    }


def test_a_bad_item_of_a_batch_is_an_error_between_two_answers(report: Any) -> None:
    city, bad, alone = report["batch"]["results"]
    assert (city["result"], bad["result"], alone["result"]) == ("response", "error", "response")
    assert (city["response"]["text"], alone["response"]["text"]) == ("西安明天有雨吗", "今天几号")
    assert (bad["error"]["code"], bad["error"]["request_id"]) == (3, "bad")
    assert bad["error"]["message"] == report["bad"]["details"]


def test_the_answers_of_a_stream_are_told_apart_by_their_names(report: Any) -> None:
    answers = {answer["request_id"]: answer for answer in report["stream"]}
    assert {name: answer["result"] for name, answer in answers.items()} == {
        "city": "response",
        "bad": "error",
        "emoji": "response",
    }
    assert answers["city"]["response"]["text"] == "西安明天有雨吗"
    assert answers["emoji"]["response"]["text"] == "😀多少钱😀"
    assert answers["bad"]["error"]["message"] == report["bad"]["details"]
