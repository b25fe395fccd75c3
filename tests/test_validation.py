from pathlib import Path
from typing import Any

import pytest

from serving.config import ServerSettings
from serving.pb import rewriter_pb2 as pb
from serving.validation import InvalidRequest, check_batch, check_request

SETTINGS = ServerSettings(
    model_dir=Path("unused"),
    max_history_turns=3,
    max_turn_characters=6,
    max_utterance_characters=5,
    max_alternatives=2,
    max_batch_items=2,
)


def violations(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as raised:
        check_request(pb.RewriteRequest(**{"utterance": "明天呢", **fields}), SETTINGS)
    return {violation.field: violation.description for violation in raised.value.violations}


def test_a_request_at_every_limit_is_accepted() -> None:
    request = pb.RewriteRequest(
        history=["一二三四五六", "", "𠮷" * 6],
        utterance="一二三四五",
        max_alternatives=2,
        failure_mode=pb.FAILURE_MODE_ERROR,
        request_id="x" * 128,
    )
    check_request(request, SETTINGS)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"utterance": ""}, {"utterance": "expected a turn, found nothing"}),
        ({"utterance": "一二三四五六"}, {"utterance": "expected at most 5 characters, found 6"}),
        ({"history": ["西安"] * 4}, {"history": "expected at most 3 turns, found 4"}),
        ({"history": ["西安", "一二三四五六七"]}, {"history[1]": "expected at most 6 characters, found 7"}),
        ({"max_alternatives": -1}, {"max_alternatives": "expected 0 to 2, found -1"}),
        ({"max_alternatives": 3}, {"max_alternatives": "expected 0 to 2, found 3"}),
        ({"failure_mode": 9}, {"failure_mode": "expected a known FailureMode, found 9"}),
        ({"request_id": "x" * 129}, {"request_id": "expected at most 128 characters, found 129"}),
    ],
)
def test_a_field_beyond_its_limit_is_named_with_the_limit_and_what_arrived(
    fields: dict[str, Any], expected: dict[str, str]
) -> None:
    assert violations(**fields) == expected


def test_every_violation_is_named_at_once() -> None:
    assert set(violations(utterance="", history=["西安"] * 4, max_alternatives=-5)) == {
        "utterance",
        "history",
        "max_alternatives",
    }


def test_a_hostile_request_gets_a_short_list_without_its_text() -> None:
    many = SETTINGS.model_copy(update={"max_history_turns": 9_999})
    with pytest.raises(InvalidRequest) as raised:
        check_request(pb.RewriteRequest(utterance="明天呢", history=["百年孤独百年孤独"] * 10_000), many)
    found = {violation.field: violation.description for violation in raised.value.violations}
    assert len(found) == 8
    assert "百年孤独" not in repr(found)


def test_turns_beyond_the_number_of_turns_are_not_looked_at() -> None:
    assert set(violations(history=[""] * 3 + ["一二三四五六七"])) == {"history"}


def test_lengths_count_code_points_not_bytes() -> None:
    check_request(pb.RewriteRequest(utterance="𠮷𠮷𠮷𠮷𠮷"), SETTINGS)


def test_a_batch_beyond_its_limit_is_refused_as_a_whole() -> None:
    check_batch(pb.BatchRewriteRequest(requests=[pb.RewriteRequest()] * 2), SETTINGS)
    with pytest.raises(InvalidRequest, match="requests: expected at most 2 requests, found 3"):
        check_batch(pb.BatchRewriteRequest(requests=[pb.RewriteRequest()] * 3), SETTINGS)


def test_a_server_without_tls_refuses_to_listen_beyond_this_machine_unless_told_otherwise() -> None:
    with pytest.raises(ValueError, match=r"expected a loopback host, found '0\.0\.0\.0'"):
        ServerSettings(model_dir=Path("unused"), host="0.0.0.0")
    assert ServerSettings(model_dir=Path("unused"), host="0.0.0.0", allow_insecure=True).host == "0.0.0.0"
    assert ServerSettings(model_dir=Path("unused"), host="::1").host == "::1"


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITER_MODEL_DIR", "/models/zh")
    monkeypatch.setenv("REWRITER_MAX_QUEUE_SIZE", "7")
    settings = ServerSettings()  # type: ignore[call-arg]  # from the environment
    assert (settings.model_dir, settings.max_queue_size) == (Path("/models/zh"), 7)
