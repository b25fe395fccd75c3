"""Reading text files: what a line may look like, and what is said about one that cannot be read."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rewriter.conversation import Conversation, Example
from rewriter.corpus import (
    KINDS,
    NOTHING_TO_DO_KINDS,
    RESTORING_KINDS,
    Corpus,
    read_conversations,
    read_corpus,
    read_dialogues,
    topic_changes,
    untouched,
    write_corpus,
)

LINE = "北京今天冷吗\t今天很冷\t明天呢\t北京明天冷吗"
EXAMPLE = Example(Conversation(("北京今天冷吗", "今天很冷"), "明天呢"), "北京明天冷吗")


def read(tmp_path: Path, content: str | bytes) -> Corpus:
    path = tmp_path / "train.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_corpus(path)


def errors(tmp_path: Path, content: str | bytes) -> list[str]:
    """What is said about the lines of a file, without the path before it."""
    return [error.removeprefix(f"{tmp_path / 'train.txt'}:") for error in read(tmp_path, content).errors]


@pytest.mark.parametrize("separator", ["\t", "\t\t", "\t\t\t\t"])
def test_columns_are_separated_by_one_or_more_tabs(tmp_path: Path, separator: str) -> None:
    corpus = read(tmp_path, LINE.replace("\t", separator) + "\n")
    assert corpus.examples == (EXAMPLE,)
    assert corpus.errors == ()


@pytest.mark.parametrize("turns", [(), ("一",), ("一", "二", "三", "四", "五")])
def test_all_columns_before_the_last_two_are_history_turns(tmp_path: Path, turns: tuple[str, ...]) -> None:
    assert read(tmp_path, "\t".join((*turns, "明天呢", "北京明天呢"))).examples == (
        Example(Conversation(turns, "明天呢"), "北京明天呢"),
    )


@pytest.mark.parametrize(
    "header",
    [
        "history\tutterance\treference",
        "history1\thistory2\tutterance\treference",
        "utterance\treference",
        "\ufeffa\tutterance\treference",
    ],
)
def test_a_header_is_no_example(tmp_path: Path, header: str) -> None:
    corpus = read(tmp_path, f"{header}\n{LINE}\n")
    assert corpus.examples == (EXAMPLE,)
    assert corpus.line_numbers == (2,)
    assert corpus.errors == ()


def test_only_the_first_line_can_be_a_header(tmp_path: Path) -> None:
    corpus = read(tmp_path, f"{LINE}\nutterance\treference\n")
    assert corpus.examples[1] == Example(Conversation((), "utterance"), "reference")


def test_a_byte_order_mark_is_no_part_of_the_first_turn(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbf" + LINE.encode()).examples == (EXAMPLE,)


def test_windows_line_ends_are_no_part_of_the_reference(tmp_path: Path) -> None:
    assert read(tmp_path, f"{LINE}\r\n{LINE}\t\r\n".encode()).examples == (EXAMPLE, EXAMPLE)


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, odd: str) -> None:
    corpus = read(tmp_path, f"你{odd}好\t早{odd}上\t上{odd}海\n{LINE}")
    assert corpus.examples == (Example(Conversation((f"你{odd}好",), f"早{odd}上"), f"上{odd}海"), EXAMPLE)
    assert corpus.line_numbers == (1, 2)


def test_white_space_around_columns_is_left_out(tmp_path: Path) -> None:
    assert read(tmp_path, "\t " + LINE.replace("\t", " \t\u3000") + " \t\n").examples == (EXAMPLE,)


@pytest.mark.parametrize("content", ["", "\n", "\n\n  \n\t\t\n\r\n", "\ufeff", "\ufeff\n"])
def test_an_empty_file_has_no_examples_and_no_errors(tmp_path: Path, content: str) -> None:
    corpus = read(tmp_path, content)
    assert (corpus.examples, corpus.line_numbers, corpus.errors) == ((), (), ())


def test_bad_lines_are_reported_one_by_one_with_their_place_and_the_rest_is_read(tmp_path: Path) -> None:
    content = b"\n".join(
        ["只有一列".encode(), LINE.encode(), b"", "前\t中".encode() + b"\xff\t" + "后".encode(), LINE.encode()]
    )
    corpus = read(tmp_path, content)
    path = tmp_path / "train.txt"
    assert corpus.path == path
    assert corpus.examples == (EXAMPLE, EXAMPLE)
    assert corpus.line_numbers == (2, 5)
    assert corpus.errors == (
        f"{path}:1: expected history turns, utterance and reference, found 1 column",
        f"{path}:4: expected UTF-8, found byte 0xff at byte 7",
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("前文\t\u3000\t改写", "an empty utterance"),
        ("前文\t问题\t ", "an empty reference"),
        ("改写", "1 column"),
        ("\t改写\t", "1 column"),
    ],
)
def test_a_line_without_utterance_or_reference_says_so(tmp_path: Path, line: str, found: str) -> None:
    assert errors(tmp_path, line) == [f"1: expected history turns, utterance and reference, found {found}"]


def test_the_byte_that_is_not_utf_8_is_named_after_a_byte_order_mark_too(tmp_path: Path) -> None:
    assert errors(tmp_path, b"\xef\xbb\xbfab\xfe\tcd\n") == ["1: expected UTF-8, found byte 0xfe at byte 2"]


def test_another_encoding_is_reported_and_does_not_crash(tmp_path: Path) -> None:
    corpus = read(tmp_path, f"{LINE}\n{LINE}\n".encode("gb18030"))
    assert corpus.examples == ()
    assert len(corpus.errors) == 2


def test_errors_do_not_repeat_the_text(tmp_path: Path) -> None:
    assert all("秘密" not in error for error in errors(tmp_path, "秘密\n秘密\t \t秘密\n" + "秘密\t\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        read_corpus(tmp_path / "nowhere.txt")


def test_an_untouched_example_has_its_reference_for_an_utterance() -> None:
    assert untouched([EXAMPLE]) == [Example(Conversation(EXAMPLE.conversation.history, "北京明天冷吗"), "北京明天冷吗")]


# Records

RECORD = {"history": ["北京今天冷吗", "今天很冷"], "utterance": "明天呢", "rewrite": ["北京明天冷吗"]}


def read_records(tmp_path: Path, *records: Any) -> Corpus:
    """A .jsonl file, a line each of records or of bytes as they are."""
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return read_corpus(path)


def test_a_record_says_what_a_line_of_columns_says(tmp_path: Path) -> None:
    corpus = read_records(tmp_path, RECORD)
    assert (corpus.examples, corpus.line_numbers, corpus.errors) == ((EXAMPLE,), (1,), ())
    assert EXAMPLE.references == ("北京明天冷吗",)


def test_the_first_rewrite_is_the_best_and_the_others_are_as_good(tmp_path: Path) -> None:
    [example] = read_records(tmp_path, RECORD | {"rewrite": ["北京明天冷吗", "明天北京冷吗", "北京明天呢"]}).examples
    assert (example.reference, example.alternatives) == ("北京明天冷吗", ("明天北京冷吗", "北京明天呢"))
    assert example.references == ("北京明天冷吗", "明天北京冷吗", "北京明天呢")


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_may_have_any_kind(tmp_path: Path, kind: str) -> None:
    without, null, named = read_records(tmp_path, RECORD, RECORD | {"kind": None}, RECORD | {"kind": kind}).examples
    assert (without.kind, null.kind, named.kind) == ("", "", kind)


def test_a_kind_is_one_of_two_sorts() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert set(KINDS) == {*RESTORING_KINDS, *NOTHING_TO_DO_KINDS}


def test_a_record_may_have_other_fields_blank_turns_and_no_history(tmp_path: Path) -> None:
    odd = {"id": 7, "history": ["", "一\t二\n"], "utterance": " 明天\u3000", "rewrite": ["\n明 天 "]}
    first, second = read_records(tmp_path, odd, RECORD | {"history": []}).examples
    # What is around utterance and rewrite is left out, as in columns; turns of the history are as they are.
    assert first == Example(Conversation(("", "一\t二\n"), "明天"), "明 天")
    assert second.conversation.history == ()


def test_blank_lines_line_ends_and_a_byte_order_mark_do_no_harm_to_records(tmp_path: Path) -> None:
    line = json.dumps(RECORD).encode()
    corpus = read_records(tmp_path, b"\xef\xbb\xbf" + line + b"\r", b"", b"  \r", line)
    assert (corpus.examples, corpus.line_numbers, corpus.errors) == ((EXAMPLE, EXAMPLE), (1, 4), ())


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        (b'{"history": [', "the line"),
        (b"plain text", "the line"),
        (LINE.encode(), "the line"),
        (b'{"history": [], "utterance": "\xff", "rewrite": ["a"]}', "the line"),
        (b"null", "the line"),
        (b'["a", "b"]', "the line"),
        ({key: RECORD[key] for key in ("utterance", "rewrite")}, "history"),
        ({key: RECORD[key] for key in ("history", "rewrite")}, "utterance"),
        ({key: RECORD[key] for key in ("history", "utterance")}, "rewrite"),
        (RECORD | {"history": "一二"}, "history"),
        (RECORD | {"history": None}, "history"),
        (RECORD | {"history": ["一", 2]}, "history.1"),
        (RECORD | {"utterance": 5}, "utterance"),
        (RECORD | {"utterance": ""}, "utterance"),
        (RECORD | {"utterance": " \u3000"}, "utterance"),
        (RECORD | {"rewrite": "北京明天冷吗"}, "rewrite"),
        (RECORD | {"rewrite": []}, "rewrite"),
        (RECORD | {"rewrite": ["北京明天冷吗", ""]}, "rewrite.1"),
        (RECORD | {"rewrite": ["\t"]}, "rewrite.0"),
        (RECORD | {"rewrite": [None]}, "rewrite.0"),
        (RECORD | {"kind": "joke"}, "kind"),
        (RECORD | {"kind": ""}, "kind"),
        (RECORD | {"kind": ["pronoun"]}, "kind"),
    ],
    ids=str,
)
def test_a_bad_record_is_reported_with_its_place_and_the_rest_is_read(tmp_path: Path, bad: Any, where: str) -> None:
    corpus = read_records(tmp_path, RECORD, bad, RECORD)
    assert corpus.examples == (EXAMPLE, EXAMPLE)
    assert corpus.line_numbers == (1, 3)
    [error] = corpus.errors
    place = f"{tmp_path / 'train.jsonl'}:2: expected a record of history, utterance and rewrite; {where}: "
    assert error.startswith(place)
    assert len(error) > len(place)


def test_errors_of_records_do_not_repeat_the_text(tmp_path: Path) -> None:
    bad = [RECORD | changes for changes in ({"kind": "秘密"}, {"rewrite": "秘密"}, {"history": {"秘密": 1}})]
    found = read_records(tmp_path, *bad, '{"秘密"'.encode(), "秘密".encode()).errors
    assert len(found) == 5
    assert not any("秘密" in error for error in found)


# Dialogues


def test_dialogues_are_read_from_plain_and_gzipped_files(tmp_path: Path) -> None:
    dialogues = [["你好", "早上好"], [], ["line\u2028separator"]]
    content = "".join(json.dumps({"id": 1, "turns": turns}, ensure_ascii=False) + "\n" for turns in dialogues).encode()
    plain, packed = tmp_path / "d.jsonl", tmp_path / "d.jsonl.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    assert list(read_dialogues(plain)) == dialogues
    assert list(read_dialogues(packed)) == dialogues


def test_blank_lines_and_a_byte_order_mark_between_dialogues_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"turns": ["a"]}\r\n\r\n{"turns": ["b"]}\n\n')
    assert list(read_dialogues(path)) == [["a"], ["b"]]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"turns": ["a"',
        b"plain text",
        b'["a", "b"]',
        b'"turns"',
        b"null",
        b'{"turn": ["a"]}',
        b'{"turns": "ab"}',
        b'{"turns": ["a", 1]}',
        b'{"turns": [{"text": "a"}]}',
        b'{"turns": ["\xff"]}',
    ],
)
def test_a_line_that_is_no_dialogue_is_reported_with_its_place(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'{"turns": ["a"]}\n' + bad + b"\n")
    dialogues = read_dialogues(path)
    assert next(dialogues) == ["a"]
    with pytest.raises(ValueError, match=r'd\.jsonl:2: expected \{"turns": \[text, …\]\}, found'):
        next(dialogues)


def test_a_topic_change_is_the_first_turn_of_another_conversation_left_alone() -> None:
    examples = [
        Example(Conversation((f"你喜欢{name}吗", "喜欢"), "为什么"), f"为什么喜欢{name}") for name in "甲乙丙丁戊"
    ]
    made = topic_changes(examples, seed=1)
    openings = {example.conversation.history[0] for example in examples}
    assert made
    for example in made:
        assert example.conversation.utterance == example.reference
        assert example.reference in openings
        assert example.reference not in example.conversation.history
    assert made == topic_changes(examples, seed=1)


def test_the_histories_of_a_corpus_are_conversations(tmp_path: Path) -> None:
    columns, dialogues = tmp_path / "corpus.txt", tmp_path / "dialogues.jsonl"
    columns.write_text("我有猫 \t\t几岁了\t三岁\t猫三岁\n", encoding="utf-8")
    dialogues.write_text('{"turns": ["我有猫", "几岁了"]}\n', encoding="utf-8")
    assert [tuple(turns) for path in (columns, dialogues) for turns in read_conversations(path)] == [
        ("我有猫", "几岁了")
    ] * 2
    columns.write_text("我有猫\t几岁了\t三岁\t猫三岁\n一列\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"{columns}:2: expected history turns"):
        list(read_conversations(columns))


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    examples = (replace(EXAMPLE, alternatives=("明天北京冷吗",), kind="omission"), EXAMPLE)
    write_corpus(examples, path)
    assert read_corpus(path).examples == examples
    with pytest.raises(ValueError, match="rewrite"):
        write_corpus([EXAMPLE, replace(EXAMPLE, reference=" ")], path)
    assert read_corpus(path).examples == examples
