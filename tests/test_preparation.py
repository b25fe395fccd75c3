"""From a small corpus to prepared examples."""

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewriter import preparation
from rewriter.config import Calibration, FeaturesConfig
from rewriter.conversation import Conversation, Example
from rewriter.corpus import read_corpus
from rewriter.dataset import PreparedExamples
from rewriter.features import ARRAY_NAMES, Features
from rewriter.preparation import RememberingTokenizer, encode_examples, prepare
from rewriter.tokenizer import Granularity, Token, Tokenizer
from rewriter.vocabulary import Vocabulary

VALIDATION = [
    "周末去香山吗\t香山人多\t哪里人少\t香山哪里人少",
    "你看过三体吗\t看过\t作者是谁\t三体的作者是谁",
]
NOT_COPYABLE = "我想买车\t预算多少\t十万\t我买汽车预算十万元整"
BAD = "这一行只有一列"
TRAINING = [
    "北京今天冷吗\t今天很冷\t明天呢\t北京明天冷吗",
    "我买了iPhone15\t好用吗\t拍照清楚\tiPhone15拍照清楚",
    "流浪地球好看吗\t挺好看\t导演是谁\t流浪地球导演是谁",
    NOT_COPYABLE,
    "你有钢琴吗\t有一台\t学了几年\t钢琴学了几年",
]
REPEATED = VALIDATION[0]
LINES = [*TRAINING[:2], BAD, TRAINING[0], *TRAINING[2:], REPEATED, *VALIDATION]
DIALOGUES = [
    ["想去上海看展览", "上海最近有什么展览", "上海博物馆有青铜器展览", "那就去上海博物馆看青铜器"],
    ["猫不爱吃饭怎么办", "猫不爱吃饭要看医生", "哪里的医生会给猫看病"],
]
CONFIG = FeaturesConfig(granularity=Granularity.WORD, function_words=("的", "是"), max_source_tokens=64)


def write_corpus(directory: Path, lines: list[str]) -> Path:
    path = directory / "corpus.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_dialogues(directory: Path) -> Path:
    path = directory / "dialogues.jsonl"
    path.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in DIALOGUES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("prepared")
    prepare(
        write_corpus(directory, LINES),
        directory / "out",
        dialogue_paths=[write_dialogues(directory)],
        validation_lines=len(VALIDATION),
        config=CONFIG,
    )
    return directory / "out"


def features_of(directory: Path) -> Features:
    return Features(FeaturesConfig.load(directory / "features.json"), Vocabulary.load(directory))


def examples_of(lines: list[str], tmp_path: Path) -> list[Example]:
    return list(read_corpus(write_corpus(tmp_path, lines)).examples)


def rows(directory: Path, name: str, arrays: Sequence[str] = ARRAY_NAMES) -> Iterator[tuple[bytes, ...]]:
    """Every prepared example of a part, as bytes that can be compared."""
    part = PreparedExamples.load(directory / f"{name}.npz")
    for i in range(len(part)):
        source = slice(part.source_offsets[i], part.source_offsets[i + 1])
        target = part.positions[part.target_offsets[i] : part.target_offsets[i + 1]]
        yield (*(part.arrays[array][source].tobytes() for array in arrays), target.tobytes())


def report(directory: Path) -> dict[str, float]:
    counts: dict[str, float] = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    return counts


def test_every_file_is_written(prepared: Path) -> None:
    training = {
        "train",
        "train_untouched",
        "train_topic_changes",
        "train_variants",
        "train_swapped",
        "train_lengthened",
        "incomplete",
        "excerpts",
    }
    parts = training | {"validation", "validation_untouched"}
    texts = {"words.txt", "characters.txt", "features.json", "report.json"}
    assert {path.name for path in prepared.iterdir()} == {f"{part}.npz" for part in parts} | texts
    assert FeaturesConfig.load(prepared / "features.json") == CONFIG


def test_the_report_counts_what_was_read_used_and_left_out(prepared: Path) -> None:
    counts = report(prepared)
    assert counts["lines"] == len(LINES)
    assert counts["unreadable_lines"] == 1
    assert counts["repeated_lines_left_out"] == 2
    assert counts["train"] == counts["train_untouched"] == len(TRAINING)
    assert counts["validation"] == counts["validation_untouched"] == len(VALIDATION)
    assert counts["train_not_copyable"] == 1
    assert counts["train_untouched_not_copyable"] == counts["validation_not_copyable"] == 0
    assert counts["train_too_long"] == 0


def test_the_report_counts_the_examples_in_the_files(prepared: Path) -> None:
    counts = report(prepared)
    for path in prepared.glob("*.npz"):
        part = PreparedExamples.load(path)
        assert counts[path.stem] == len(part) > 0
        assert counts[f"{path.stem}_not_copyable"] == np.count_nonzero(part.target_lengths == 0)


def test_the_report_says_how_many_words_are_on_no_list(tmp_path: Path) -> None:
    lines = ["你有钢琴吗\t有一台\t学了几年\t钢琴学了几年", *VALIDATION]
    prepare(write_corpus(tmp_path, lines), tmp_path / "out", validation_lines=2, max_words=6, config=CONFIG)
    [known] = Vocabulary.load(tmp_path / "out").words[5:]
    words = [word.surface for turn in lines[0].split("\t")[:3] for word in Tokenizer(Granularity.WORD).tokenize(turn)]
    expected = 1 - words.count(known) / len(words)
    assert report(tmp_path / "out")["train_unknown_words"] == pytest.approx(expected, abs=1e-4)


def test_prepared_arrays_are_those_of_the_service(prepared: Path, tmp_path: Path) -> None:
    features = features_of(prepared)
    for name, lines in (("train", TRAINING), ("validation", VALIDATION)):
        expected = []
        for example in examples_of(lines, tmp_path):
            source = features.encode(example.conversation)
            target = np.array(features.target(source, example.reference) or [], np.int32)
            expected.append((*(getattr(source, array).tobytes() for array in ARRAY_NAMES), target.tobytes()))
        assert list(rows(prepared, name)) == expected


def test_untouched_examples_copy_their_own_utterance(prepared: Path) -> None:
    features = features_of(prepared)
    part = PreparedExamples.load(prepared / "train_untouched.npz")
    for index in range(len(part)):
        turn_ids = part.arrays["turn_ids"][part.source_offsets[index] : part.source_offsets[index + 1]]
        positions = part.positions[part.target_offsets[index] : part.target_offsets[index + 1]]
        assert positions.tolist() == np.flatnonzero(turn_ids == 1).tolist()
    assert features.config == CONFIG


def test_no_validation_example_is_among_those_of_training(prepared: Path) -> None:
    held_out = {*rows(prepared, "validation"), *rows(prepared, "validation_untouched")}
    for name in ("train", "train_untouched", "train_variants", "train_swapped", "train_lengthened", "incomplete"):
        assert held_out.isdisjoint(rows(prepared, name))
    assert held_out.isdisjoint(rows(prepared, "excerpts"))


def test_training_examples_that_become_validation_examples_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer: list[Example] = []
    monkeypatch.setattr(preparation, "lengthen", lambda examples, seed: longer.extend(examples) or [])
    history, complete = "周末去香山吗\t香山人多", "香山哪里人少"
    # Its untouched form is the validation line; taking 香山 out of the other one can give the second.
    training = [f"{history}\t人少吗\t{complete}", TRAINING[0]]
    validation = [f"{history}\t{complete}\t{complete}", f"{history}\t哪里人少\t{complete}"]
    counts = prepare(write_corpus(tmp_path, training + validation), tmp_path / "out", validation_lines=2, config=CONFIG)
    assert (counts["train"], counts["train_untouched"]) == (2, 1)
    held_out = {*rows(tmp_path / "out", "validation"), *rows(tmp_path / "out", "validation_untouched")}
    for name in ("train", "train_untouched", "train_variants"):
        assert held_out.isdisjoint(rows(tmp_path / "out", name))
    # With more turns it would not be known again.
    assert Conversation(tuple(history.split("\t")), complete) not in [example.conversation for example in longer]


@pytest.mark.parametrize("history", ["周末去ＮＢＡ吗", "周末去nba吗"])
def test_what_is_held_out_is_not_taught_in_other_letters_nor_by_dialogues(tmp_path: Path, history: str) -> None:
    held_out = "周末去NBA吗\tNBA人多\t哪里人少\tNBA哪里人少"
    corpus = write_corpus(tmp_path, [*TRAINING, f"{history}\tnba人多\t哪里人少\tNBA里哪里人少", held_out])
    dialogues = tmp_path / "dialogues.jsonl"
    turns = [[history, "nba人多", "NBA哪里人少"]] * 20 + DIALOGUES
    dialogues.write_text("".join(json.dumps({"turns": t}) + "\n" for t in turns), encoding="utf-8")
    counts = prepare(corpus, tmp_path / "out", dialogue_paths=[dialogues], validation_lines=1, config=CONFIG)
    assert (counts["train"], counts["repeated_lines_left_out"]) == (len(TRAINING), 1)
    conversations = {row[:3] for name in ("validation", "validation_untouched") for row in rows(tmp_path / "out", name)}
    for name in ("incomplete", "excerpts"):
        assert conversations.isdisjoint(row[:3] for row in rows(tmp_path / "out", name))


def test_of_fewer_further_corpora_none_of_earlier_ones_is_left(tmp_path: Path) -> None:
    corpus, extra = write_corpus(tmp_path, LINES), write_extra(tmp_path, *EXTRA)
    given: dict[str, Any] = {"validation_lines": 2, "config": CONFIG}
    prepare(corpus, tmp_path / "out", extra_paths=[extra, extra], **given)
    assert (tmp_path / "out" / "extra_2.npz").exists()
    counts = prepare(corpus, tmp_path / "out", extra_paths=[extra], **given)
    assert counts["extra"] == counts["extra_1"] == len(EXTRA)
    assert not (tmp_path / "out" / "extra_2.npz").exists()


def test_a_variant_is_no_training_example(prepared: Path) -> None:
    assert set(rows(prepared, "train_variants")).isdisjoint(rows(prepared, "train"))


def test_variants_have_the_references_of_training_and_other_utterances(prepared: Path, tmp_path: Path) -> None:
    features = features_of(prepared)
    references = {normalized(example.reference) for example in examples_of(TRAINING, tmp_path)}
    part = PreparedExamples.load(prepared / "train_variants.npz")
    words = features.vocabulary.words
    for index in range(len(part)):
        word_ids = part.arrays["word_ids"][part.source_offsets[index] : part.source_offsets[index + 1]]
        positions = part.positions[part.target_offsets[index] : part.target_offsets[index + 1]]
        spelled = "".join(words[word_ids[position]] for position in positions[:-1])
        assert not len(positions) or spelled in references


def normalized(text: str) -> str:
    return "".join(text.lower().split())


def test_bad_lines_are_logged_with_their_place_and_without_their_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_corpus(tmp_path, LINES)
    with caplog.at_level(logging.WARNING, logger="rewriter.preparation"):
        prepare(path, tmp_path / "out", validation_lines=2, config=CONFIG)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}:3: expected history turns, utterance and reference, found 1 column"
    ]


@pytest.mark.parametrize("part", ["incomplete", "excerpts"])
def test_without_dialogues_there_is_no_part_of_them(tmp_path: Path, part: str) -> None:
    counts = prepare(write_corpus(tmp_path, LINES), tmp_path / "out", validation_lines=2, config=CONFIG)
    assert not (tmp_path / "out" / f"{part}.npz").exists()
    assert part not in counts


def test_preparing_anew_leaves_nothing_of_an_earlier_preparation(tmp_path: Path) -> None:
    corpus, output = write_corpus(tmp_path, LINES), tmp_path / "out"
    prepare(corpus, output, dialogue_paths=[write_dialogues(tmp_path)], validation_lines=2, config=CONFIG)
    of_dialogues = [output / "excerpts.npz", output / "incomplete.npz"]
    assert all(path.exists() for path in of_dialogues)
    prepare(corpus, output, validation_lines=2, config=CONFIG)
    assert not any(path.exists() for path in of_dialogues)
    assert (output / "train.npz").exists()


def test_half_a_preparation_has_no_report_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, output = write_corpus(tmp_path, LINES), tmp_path / "out"
    prepare(corpus, output, validation_lines=2, config=CONFIG)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "encode_examples", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, output, validation_lines=2, config=CONFIG)
    assert not (output / "report.json").exists()


@pytest.mark.parametrize("validation_lines", [9, 10, 1000])
def test_too_few_lines_are_refused_with_both_numbers_before_anything_is_written(
    tmp_path: Path, validation_lines: int
) -> None:
    path = write_corpus(tmp_path, LINES)
    with pytest.raises(ValueError, match=f"corpus.txt: expected over {validation_lines} readable lines, found 9"):
        prepare(path, tmp_path / "out", validation_lines=validation_lines)
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_only_repeats_its_validation_lines_is_refused(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, VALIDATION * 2)
    with pytest.raises(ValueError, match="corpus.txt: expected lines besides the 2 of validation"):
        prepare(path, tmp_path / "out", validation_lines=2)


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected over 0 readable lines, found 0"):
        prepare(write_corpus(tmp_path, []), tmp_path / "out", validation_lines=0)


def test_without_validation_lines_all_lines_are_training(tmp_path: Path) -> None:
    counts = prepare(write_corpus(tmp_path, TRAINING), tmp_path / "out", validation_lines=0, config=CONFIG)
    assert counts["train"] == len(TRAINING)
    assert not (tmp_path / "out" / "validation.npz").exists()


def test_another_process_prepares_the_same_files(tmp_path: Path) -> None:
    # The order of a set of texts differs from process to process.
    corpus, dialogues = write_corpus(tmp_path, LINES), write_dialogues(tmp_path)
    code = (
        "import sys; from pathlib import Path; from rewriter.preparation import prepare; "
        "corpus, dialogues, output = map(Path, sys.argv[1:]); "
        "prepare(corpus, output, dialogue_paths=[dialogues], validation_lines=2)"
    )
    outputs = [tmp_path / "first", tmp_path / "second"]
    for hash_seed, output in zip("12", outputs, strict=True):
        command = [sys.executable, "-c", code, str(corpus), str(dialogues), str(output)]
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True, capture_output=True)
    first, second = outputs
    for name in ("words.txt", "characters.txt", "features.json", "report.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    for name in ("train", "train_variants", "train_swapped", "train_lengthened", "incomplete"):
        assert list(rows(first, name)) == list(rows(second, name))


EXTRA = [
    {
        "history": ["杭州好玩吗", "西湖很美"],
        "utterance": "怎么去",
        "rewrite": ["怎么去杭州", "怎么去西湖"],
        "kind": "omission",
    },
    {"history": ["苏州好玩吗"], "utterance": "什么时候去好", "rewrite": ["什么时候去苏州好"]},
    {"history": ["你在干嘛"], "utterance": "晚上好", "rewrite": ["晚上好"], "kind": "greeting"},
]
HELD_OUT = {"history": ["周末去香山吗", "香山人多"], "utterance": "哪里人少", "rewrite": ["香山里哪里人少"]}


def write_extra(directory: Path, *records: dict[str, Any]) -> Path:
    path = directory / "extra.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_further_corpora_make_parts_of_their_own_and_change_no_other(prepared: Path, tmp_path: Path) -> None:
    paths = [write_corpus(tmp_path, LINES), write_extra(tmp_path, *EXTRA), tmp_path / "more.txt"]
    paths[2].write_text("你有狗吗\t有一只\t多大了\t狗多大了\n" + BAD, encoding="utf-8")
    counts = prepare(
        paths[0],
        tmp_path / "out",
        extra_paths=paths[1:],
        dialogue_paths=[write_dialogues(tmp_path)],
        validation_lines=len(VALIDATION),
        config=CONFIG,
    )
    assert (counts["extra"], counts["extra_untouched"], counts["lines"]) == (4, 3, len(LINES))
    made = {path.name for path in (tmp_path / "out").iterdir()} - {path.name for path in prepared.iterdir()}
    assert made == {f"extra{part}.npz" for part in ("", "_untouched", "_swapped", "_1", "_2")}
    assert [*rows(tmp_path / "out", "extra_1"), *rows(tmp_path / "out", "extra_2")] == [
        *rows(tmp_path / "out", "extra")
    ]
    assert (counts["extra_1"], counts["extra_2"]) == (3, 1)
    assert (tmp_path / "out" / "features.json").read_bytes() == (prepared / "features.json").read_bytes()
    whatever_words_are_known = ("turn_ids", "copy_ids")
    for path in prepared.glob("*.npz"):
        found, expected = (rows(folder, path.stem, whatever_words_are_known) for folder in (tmp_path / "out", prepared))
        assert list(found) == list(expected)


def test_words_and_punctuation_of_further_corpora_are_in_the_vocabulary(tmp_path: Path) -> None:
    record = {"history": ["苏州好玩吗？"], "utterance": "什么时候去好", "rewrite": ["什么时候去苏州好"]}
    prepare(
        write_corpus(tmp_path, LINES),
        tmp_path / "out",
        extra_paths=[write_extra(tmp_path, record)],
        validation_lines=2,
        config=CONFIG,
    )
    vocabulary = Vocabulary.load(tmp_path / "out")
    assert {"苏州", "?"} <= set(vocabulary.words)
    assert "?" in vocabulary.characters


def test_a_further_corpus_teaches_nothing_that_is_held_out(tmp_path: Path) -> None:
    # The same conversation with another rewrite, and a rewrite that is the utterance of another example.
    complete = {"history": EXTRA[0]["history"], "utterance": "怎么去杭州", "rewrite": ["怎么去杭州"]}
    corpus = write_corpus(tmp_path, [*TRAINING, *VALIDATION])
    extra = write_extra(tmp_path, *EXTRA, HELD_OUT, complete)
    counts = prepare(corpus, tmp_path / "out", extra_paths=[extra], validation_lines=2, config=CONFIG, seed=3)
    assert (counts["extra"], counts["extra_untouched"]) == (4, 1)
    # Nor is what is held out taught with another name in it.
    features = features_of(tmp_path / "out")
    renamed = [Conversation((f"周末去{place}吗", f"{place}人多"), "哪里人少") for place in ("杭州", "苏州")]
    swapped = {row[0] for row in rows(tmp_path / "out", "extra_swapped")}
    assert swapped.isdisjoint(features.encode(conversation).word_ids.tobytes() for conversation in renamed)
    assert swapped


def test_swapped_examples_have_the_names_of_other_examples(tmp_path: Path) -> None:
    lines = ["杭州好玩吗\t很好玩\t怎么去\t怎么去杭州", "苏州好吗\t很好\t多少钱\t苏州多少钱"]
    swapped = ["苏州好玩吗\t很好玩\t怎么去\t怎么去苏州", "杭州好吗\t很好\t多少钱\t杭州多少钱"]
    prepare(write_corpus(tmp_path, [*lines, *VALIDATION]), tmp_path / "out", validation_lines=2, config=CONFIG)
    features = features_of(tmp_path / "out")
    expected = {features.encode(e.conversation).word_ids.tobytes() for e in examples_of(swapped, tmp_path)}
    assert {row[0] for row in rows(tmp_path / "out", "train_swapped")} == expected


# Remembering tokens


def test_each_turn_is_cut_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: Counter[str] = Counter()
    tokenize = Tokenizer.tokenize

    def counting(self: Tokenizer, text: str) -> list[Token]:
        cut[text] += 1
        return tokenize(self, text)

    monkeypatch.setattr(Tokenizer, "tokenize", counting)
    dialogues = write_dialogues(tmp_path)
    prepare(write_corpus(tmp_path, LINES), tmp_path / "out", dialogue_paths=[dialogues], validation_lines=2)
    assert len(cut) > 20
    assert set(cut.values()) == {1}


@pytest.mark.parametrize("granularity", Granularity)
def test_what_is_remembered_is_what_is_cut_whatever_is_done_with_it(granularity: Granularity) -> None:
    remembering, tokenizer = RememberingTokenizer(granularity), Tokenizer(granularity)
    for text in ("西安明天有雨吗", "", "iPhone15好用吗") * 2:
        found = remembering.tokenize(text)
        assert found == tokenizer.tokenize(text)
        found.clear()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewriter.preparation._REMEMBERED_TURNS", 2)
    tokenizer = RememberingTokenizer(Granularity.WORD)
    for text in ("一", "二", "三", "二", "一"):
        tokenizer.tokenize(text)
    kept = tokenizer._remembered.cache_info()
    assert (kept.currsize, kept.hits, kept.misses) == (2, 1, 4)


def test_the_features_of_a_service_remember_nothing_that_was_said(prepared: Path) -> None:
    assert type(features_of(prepared).tokenizer) is Tokenizer


def test_words_of_the_dialogues_are_in_the_vocabulary(prepared: Path) -> None:
    assert {"青铜器", "iphone15"} <= set(Vocabulary.load(prepared).words)


def test_validation_words_are_not_in_the_vocabulary(tmp_path: Path) -> None:
    prepare(write_corpus(tmp_path, LINES[:-3] + VALIDATION), tmp_path / "out", validation_lines=2, config=CONFIG)
    assert "三体" not in Vocabulary.load(tmp_path / "out").words


def test_the_vocabulary_has_at_most_the_words_asked_for(tmp_path: Path) -> None:
    prepare(write_corpus(tmp_path, LINES), tmp_path / "out", validation_lines=2, max_words=12, config=CONFIG)
    assert len(Vocabulary.load(tmp_path / "out").words) == 12


def test_the_granularity_asked_for_is_prepared(tmp_path: Path) -> None:
    config = FeaturesConfig(granularity=Granularity.CHARACTER)
    prepare(write_corpus(tmp_path, LINES), tmp_path / "out", validation_lines=2, config=config)
    words = Vocabulary.load(tmp_path / "out").words[5:]
    assert "iphone15" in words
    assert all(len(word) == 1 for word in words if not word.isascii())


def test_what_is_prepared_for_a_model_has_its_features_and_first_its_words_but_not_its_calibration(
    tmp_path: Path,
) -> None:
    vocabulary = Vocabulary.build(Counter({"香山": 2, "作者": 3}), max_words=9)
    of_model = CONFIG.model_copy(update={"calibration": Calibration(slope=2.0, min_confidence=0.4)})
    (tmp_path / "model").mkdir()
    vocabulary.save(tmp_path / "model")
    of_model.save(tmp_path / "model" / "features.json")
    (tmp_path / "model" / "weights.npz").write_bytes(b"not read where each line has one reference")
    corpus = write_corpus(tmp_path, LINES)
    with pytest.raises(ValueError, match="expected a folder for the arrays, found the model's own"):
        prepare(corpus, tmp_path / "model", validation_lines=2, model=tmp_path / "model")
    prepare(corpus, tmp_path / "same", validation_lines=2, max_words=0, model=tmp_path / "model")
    assert Vocabulary.load(tmp_path / "same") == vocabulary
    prepare(corpus, tmp_path / "out", validation_lines=2, max_words=9, model=tmp_path / "model")
    features = features_of(tmp_path / "out")
    assert features.config == CONFIG
    known = features.vocabulary
    assert len(known.words) == 9 and known.words[: len(vocabulary.words)] == vocabulary.words
    assert known.characters[: len(vocabulary.characters)] == vocabulary.characters and "琴" in known.characters
    [example, _] = read_corpus(tmp_path / "corpus.txt").examples[-2:]
    source = features.encode(example.conversation)
    found = PreparedExamples.load(tmp_path / "out" / "validation.npz").batch([0])
    assert found["word_ids"][0, : len(source)].tolist() == source.word_ids.tolist()


def test_utterances_that_are_too_long_are_counted_and_left_out(tmp_path: Path) -> None:
    long = f"你好\t你也好\t{'好 ' * 30}\t你好"
    config = FeaturesConfig(max_utterance_tokens=20)
    counts = prepare(write_corpus(tmp_path, [long, *LINES]), tmp_path / "out", validation_lines=2, config=config)
    assert (counts["train"], counts["train_too_long"]) == (len(TRAINING), 1)
    assert len(PreparedExamples.load(tmp_path / "out" / "train.npz")) == len(TRAINING)


def test_examples_keep_their_order_without_those_that_are_too_long() -> None:
    features = Features(FeaturesConfig(max_utterance_tokens=3), Vocabulary.build(Counter(), max_words=5))
    examples = [Example(Conversation(("西安",), text), text) for text in ("明天", "好 " * 4, "吗")]
    found = encode_examples(features, examples)
    expected = encode_examples(features, [examples[0], examples[2]])
    assert np.array_equal(found.source_offsets, expected.source_offsets)
    assert np.array_equal(found.arrays["word_ids"], expected.arrays["word_ids"])
