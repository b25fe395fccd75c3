"""The corpus metrics against values worked out by hand and against the libraries they reproduce.

The hand-worked sentences are all-Chinese wherever possible: their metric tokens are then simply their characters.
"""

import dataclasses
import math
import random
import subprocess
import sys
import warnings
from importlib.metadata import version

import pytest

from rewriter.metrics import (
    exact_match,
    join_tokens,
    metric_tokens,
    negative_em,
    restoration_counts,
    restoration_edits,
    score,
)

KEYS = ["em", "bleu1", "bleu2", "bleu4", "rouge1", "rouge2", "rougeL", "f1", "f2", "f3"]

SENTENCES = [
    "小猫喜欢吃什么鱼",
    "为什么隔壁的小猫不喜欢吃鱼",
    "我昨天用Python写了一个小程序",
    "这件T恤的价格是3.5元吗",
    "周末去爬山还是去看电影",
    "爬山爬山爬山我天天都要去爬山",
    "OK 那我们明天早上8点见",
    "他说好的...然后就走了",
    "New York的冬天比北京的冬天冷吗",
    "你觉得这本书好看吗.我觉得这本书很好看.",
    "把空调的温度调到26.5度",
    "好",
    "奶奶种的番茄今年结了多少个番茄",
    "A座到B座要走几分钟",
]
FRAGMENTS = ["小猫", "的", "番茄", "爬", "冬天", "Python", "OK", "3.5", ".", " . ", "...", "。", " ", "吗", "26"]


def score_one(utterance: str, reference: str, rewrite: str) -> dict[str, float]:
    return score([utterance], [reference], [rewrite])


def randomly_edited(text: str, generator: random.Random) -> str:
    for _ in range(generator.randint(0, 4)):
        start = generator.randint(0, len(text))
        end = start + generator.choice([0, 0, 1, 2])
        inserted = generator.choice([*FRAGMENTS, "", text[::-1][:2]])
        text = text[:start] + inserted + text[end:]
    return text


def random_corpus(line_count: int = 60, seed: int = 7) -> tuple[list[str], list[str], list[str]]:
    """Utterances, references and rewrites, with some empty rewrites and some identical strings among them."""
    generator = random.Random(seed)
    references = [generator.choice(SENTENCES) for _ in range(line_count)]
    utterances = [randomly_edited(reference, generator) for reference in references]
    rewrites = [randomly_edited(reference, generator) for reference in references]
    rewrites[3], rewrites[11], rewrites[20] = "", " ", references[20]
    return utterances, references, rewrites


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_chinese_words_become_characters_and_other_words_stay_whole() -> None:
    assert metric_tokens("我用Python写代码") == ["我", "用", "python", "写", "代", "码"]
    assert metric_tokens("价格是3.5元") == ["价", "格", "是", "3.5", "元"]


def test_a_word_of_mixed_script_stays_whole_and_is_cut_before_it_is_lower_cased() -> None:
    # jieba's lexicon has "T恤" but not "t恤"; lower-casing first would give "t", "恤".
    assert metric_tokens("买T恤") == ["买", "t恤"]


def test_white_space_separates_words_but_is_no_token() -> None:
    assert metric_tokens(" NBA \t总\u3000决赛\n") == ["nba", "总", "决", "赛"]
    assert metric_tokens(" \u3000\n") == []


def test_words_added_to_the_global_lexicon_do_not_change_the_tokens() -> None:
    import jieba

    jieba.add_word("甲乙丙abc")
    try:
        assert metric_tokens("甲乙丙abc") == ["甲", "乙", "丙", "abc"]
    finally:
        jieba.del_word("甲乙丙abc")


def test_cutting_prints_nothing() -> None:
    program = "from rewriter.metrics import metric_tokens; metric_tokens('你好')"
    command = [sys.executable, "-W", "ignore", "-c", program]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout + finished.stderr == ""


# --- exact match ------------------------------------------------------------------------------------------------------


def test_exact_match_is_the_share_of_equal_lines_whatever_their_case_and_spaces() -> None:
    references = ["小猫吃鱼", "我要写Python", "好的吧", "天冷吗"]
    rewrites = ["小猫吃鱼", "我要 写python ", "好吧", "天热吗"]
    assert score(references, references, rewrites)["em"] == 2 / 4


def test_any_of_several_references_is_an_exact_match() -> None:
    assert exact_match(["小猫吃鱼", "小猫吃Python"], "小猫 吃python")
    assert not exact_match(["小猫吃鱼", "小猫吃Python"], "小猫吃")


def test_an_empty_rewrite_is_no_exact_match_even_of_an_empty_reference() -> None:
    assert not exact_match(["小猫吃鱼", " "], "")


def test_negative_exact_match_is_the_share_of_utterances_returned_untouched() -> None:
    utterances = ["小猫吃鱼吗", "写Python", "天冷吗", "好"]
    assert negative_em(utterances, ["小猫 吃鱼吗", "写python", "今天天冷吗", ""]) == 2 / 4


# --- BLEU -------------------------------------------------------------------------------------------------------------


def test_bleu_multiplies_the_brevity_penalty_with_the_mean_precision() -> None:
    # reference 小 猫 喜 欢 吃 鱼 (6), rewrite 小 猫 爱 吃 鱼 (5): penalty exp(1 - 6/5).
    # 1-grams: all but 爱, 4/5. 2-grams: 小猫 and 吃鱼 of 4. No common 3-gram, so BLEU-4 is 0.
    scores = score_one("吃吗", "小猫喜欢吃鱼", "小猫爱吃鱼")
    assert scores["bleu1"] == pytest.approx(math.exp(-0.2) * 4 / 5)
    assert scores["bleu2"] == pytest.approx(math.exp(-0.2) * math.sqrt(4 / 5 * 2 / 4))
    assert scores["bleu4"] == 0.0


def test_bleu_does_not_penalise_length_twice() -> None:
    # One token too many: no penalty; precisions 6/7, 5/6, 4/5, 3/4, whose product is 3/7.
    assert score_one("吃吗", "小猫喜欢吃鱼", "小猫喜欢吃鱼吗")["bleu4"] == pytest.approx((3 / 7) ** 0.25)


def test_bleu_counts_a_repeated_token_only_as_often_as_the_reference_has_it() -> None:
    assert score_one("好吗", "好吗", "好好")["bleu1"] == 1 / 2


def test_bleu_pools_counts_over_lines_and_takes_a_short_line_for_one_failed_ngram() -> None:
    # Line 1 has 6/7 1-grams and 5/6 2-grams; line 2 has 1/1 and, like in nltk, 0/1.
    # Lengths: rewrites 7 + 1, references 6 + 1, so no penalty.
    scores = score(["吃吗", "好"], ["小猫喜欢吃鱼", "好"], ["小猫喜欢吃鱼吗", "好"])
    assert scores["bleu1"] == pytest.approx(7 / 8)
    assert scores["bleu2"] == pytest.approx(math.sqrt(7 / 8 * 5 / 7))


def test_bleu_of_rewrites_without_a_common_token_is_zero() -> None:
    scores = score_one("吃吗", "小猫喜欢吃鱼", "天冷")
    assert [scores["bleu1"], scores["bleu2"], scores["bleu4"]] == [0.0, 0.0, 0.0]


def test_bleu_equals_that_of_nltk() -> None:
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    for seed in range(5):
        utterances, references, rewrites = random_corpus(seed=seed)
        scores = score(utterances, references, rewrites)
        reference_tokens = [[metric_tokens(reference)] for reference in references]
        rewrite_tokens = [metric_tokens(rewrite) or ["hello"] for rewrite in rewrites]
        for order in (1, 2, 4):
            expected = bleu_score.corpus_bleu(reference_tokens, rewrite_tokens, weights=(1 / order,) * order)
            assert scores[f"bleu{order}"] == pytest.approx(expected, abs=1e-12)


def test_bleu_equals_that_of_nltk_line_by_line() -> None:
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    for utterance, reference, rewrite in zip(*random_corpus(), strict=True):
        scores = score_one(utterance, reference, rewrite)
        for order in (1, 2, 4):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # nltk warns about every line without a common 4-gram
                expected = bleu_score.corpus_bleu(
                    [[metric_tokens(reference)]], [metric_tokens(rewrite) or ["hello"]], weights=(1 / order,) * order
                )
            assert scores[f"bleu{order}"] == pytest.approx(expected, abs=1e-12)


# --- ROUGE ------------------------------------------------------------------------------------------------------------


def test_rouge_is_the_f_measure_of_common_ngrams() -> None:
    # reference 小 猫 喜 欢 吃 鱼, rewrite 小 猫 爱 吃 鱼.
    # 1-grams: 4 common of 6 and 5, F = 2*4 / (6+5). 2-grams: 2 common of 5 and 4, F = 2*2 / (5+4).
    # LCS 小 猫 吃 鱼: R = 4/6, P = 4/5, beta = P/R = 6/5, F = (1 + beta²) P R / (R + beta² P).
    scores = score_one("吃吗", "小猫喜欢吃鱼", "小猫爱吃鱼")
    assert scores["rouge1"] == pytest.approx(8 / 11)
    assert scores["rouge2"] == pytest.approx(4 / 9)
    assert scores["rougeL"] == pytest.approx((1 + 1.44) * (4 / 6) * (4 / 5) / (4 / 6 + 1.44 * 4 / 5))


def test_rouge_counts_a_repeated_token_once() -> None:
    # {好, 休, 息} against {休, 息}: P = 1, R = 2/3; with repetition R would be 2/4.
    scores = score_one("休息", "好好休息", "休息")
    assert scores["rouge1"] == pytest.approx(2 * (2 / 3) / (5 / 3))
    assert scores["rougeL"] == pytest.approx((1 + 2.25) * (2 / 3) / (2 / 3 + 2.25))


def test_rouge_cuts_at_every_full_stop_even_inside_a_number() -> None:
    # 我 住 3 | 5 楼 against 我 住 3 | 6 楼: 4 of 5 words and 2 of 4 pairs (pairs run across the cut) are common.
    # Whole numbers would give 3 of 4 words.
    scores = score_one("几楼", "我住3.5楼", "我住3.6楼")
    assert scores["rouge1"] == pytest.approx(4 / 5)
    assert scores["rouge2"] == pytest.approx(2 / 4)
    assert scores["rougeL"] == pytest.approx(4 / 5)


def test_rouge_l_joins_the_common_subsequences_of_all_sentence_pairs() -> None:
    # Swapped sentences: as one sentence the LCS would be 天 冷 or 去 吗, cut at the full stops both count: 4 of 4.
    assert score_one("去吗", "天冷.去吗.", "去吗.天冷.")["rougeL"] == pytest.approx(1.0)
    assert score_one("去吗", "天冷去吗", "去吗天冷")["rougeL"] == pytest.approx(1 / 2)


def test_rouge_is_a_mean_over_lines() -> None:
    # One identical line (F 1) and one without a common token (F 0).
    scores = score(["吃吗", "冷吗"], ["小猫喜欢吃鱼", "今天冷吗"], ["小猫喜欢吃鱼", "好的"])
    assert [scores["rouge1"], scores["rouge2"], scores["rougeL"]] == pytest.approx([0.5, 0.5, 0.5])


def test_rouge_of_a_rewrite_made_of_full_stops_is_zero() -> None:
    scores = score_one("然后呢", "他走了然后呢", "...")  # the library raises on a text without a sentence
    assert [scores["rouge1"], scores["rouge2"], scores["rougeL"]] == [0.0, 0.0, 0.0]


def test_rouge_equals_that_of_the_library() -> None:
    rouge = pytest.importorskip("rouge")
    assert version("rouge") == "0.3.2", "ROUGE is defined by pltrdy's rouge 0.3.2; later versions differ"
    compared = 0
    for seed in range(5):
        for utterance, reference, rewrite in zip(*random_corpus(seed=seed), strict=True):
            joined_rewrite = " ".join(metric_tokens(rewrite)) or "hello"
            if set(joined_rewrite) <= {"."}:
                continue  # the library raises
            expected = rouge.Rouge().get_scores(joined_rewrite, " ".join(metric_tokens(reference)))[0]
            scores = score_one(utterance, reference, rewrite)
            for ours, theirs in (("rouge1", "rouge-1"), ("rouge2", "rouge-2"), ("rougeL", "rouge-l")):
                assert scores[ours] == pytest.approx(expected[theirs]["f"], abs=1e-12), (reference, rewrite)
            compared += 1
    assert compared > 250


def test_rouge_equals_that_of_the_library_where_repetition_leaves_several_longest_subsequences() -> None:
    rouge = pytest.importorskip("rouge")
    generator = random.Random(5)
    for _ in range(300):
        reference, rewrite = ("".join(generator.choices("天冷去吗. ", k=12)) + "好" for _ in range(2))
        expected = rouge.Rouge().get_scores(" ".join(metric_tokens(rewrite)), " ".join(metric_tokens(reference)))[0]
        assert score_one("", reference, rewrite)["rougeL"] == pytest.approx(expected["rouge-l"]["f"], abs=1e-12)


# --- restoration F ----------------------------------------------------------------------------------------------------


def test_restoration_f_compares_the_ngrams_that_touch_a_restored_token() -> None:
    # utterance 它 贵 吗; reference 红 色 的 车 贵 吗 restores 红 色 的 车; rewrite 红 车 贵 吗 restores 红 车.
    # 1-grams: rewrite {红, 车}, both right, of 4: P = 2/2, R = 2/4, F = 2/3.
    # 2-grams: rewrite {红车, 车贵}, reference {红色, 色的, 的车, 车贵}: P = 1/2, R = 1/4, F = 1/3.
    # 3-grams: rewrite {红车贵, 车贵吗}, reference {红色的, 色的车, 的车贵, 车贵吗}: again 1 of 2 and 4, F = 1/3.
    scores = score_one("它贵吗", "红色的车贵吗", "红车贵吗")
    assert scores["f1"] == pytest.approx(2 / 3)
    assert scores["f2"] == pytest.approx(1 / 3)
    assert scores["f3"] == pytest.approx(1 / 3)


def test_restoration_f_adds_counts_over_lines_before_dividing() -> None:
    # To the 1-grams of the line above (common 2, rewrite 2, reference 4) comes a line with reference {鱼} and
    # rewrite {鸟}: (0, 1, 1). P = 2/3, R = 2/5, F = 4/8; a mean over lines would be 1/3.
    scores = score(["它贵吗", "吃吗"], ["红色的车贵吗", "吃鱼吗"], ["红车贵吗", "吃鸟吗"])
    assert scores["f1"] == pytest.approx(4 / 8)


def test_restoration_f_takes_the_ngrams_of_a_line_as_a_set() -> None:
    # reference 鱼 吃 鱼 吗: 1-grams {鱼}; rewrite 鱼 鱼 鱼 吗: {鱼}. 2-grams: {鱼吃, 吃鱼, 鱼吗} and {鱼鱼, 鱼吗}.
    scores = score_one("吃吗", "鱼吃鱼吗", "鱼鱼鱼吗")
    assert scores["f1"] == 1.0
    assert scores["f2"] == pytest.approx(2 * 1 / (2 + 3))


def test_restoration_f_skips_lines_with_nothing_to_restore() -> None:
    alone = score(["吃吗"], ["吃鱼吗"], ["吃鱼吗"])
    # The second reference only deletes a token; whatever its rewrite invents does not count.
    beside = score(["吃吗", "那天冷吗"], ["吃鱼吗", "天冷吗"], ["吃鱼吗", "昨天北京冷吗"])
    assert [beside[key] for key in ("f1", "f2")] == [alone[key] for key in ("f1", "f2")] == [1.0, 1.0]


def test_restoration_f_is_zero_when_no_line_has_anything_to_restore() -> None:
    assert score_one("天冷吗", "天冷吗", "天冷吗")["f1"] == 0.0


def test_restoration_f_of_a_copied_utterance_is_zero() -> None:
    scores = score_one("它贵吗", "红色的车贵吗", "它贵吗")
    assert [scores["f1"], scores["f2"], scores["f3"]] == [0.0, 0.0, 0.0]


def test_restoration_f_follows_from_the_counts_of_the_lines() -> None:
    lines = list(zip(*random_corpus(), strict=True))
    scores = score(*random_corpus())
    for order, counts in enumerate(zip(*(restoration_counts(*line) for line in lines), strict=True), start=1):
        common, in_rewrites, in_references = (sum(column) for column in zip(*counts, strict=True))
        assert 0 < common < in_rewrites
        assert scores[f"f{order}"] == 2 * common / (in_rewrites + in_references)


def test_restoration_counts_of_a_line_with_nothing_to_restore_are_zero() -> None:
    assert restoration_counts("那天冷吗", "天冷吗", "北京天冷吗") == ((0, 0, 0),) * 3


# --- the corpus as a whole --------------------------------------------------------------------------------------------


def test_the_metrics_come_under_their_names_in_reading_order() -> None:
    assert list(score_one("吃吗", "吃鱼吗", "吃鱼吗")) == KEYS


def test_copies_of_the_references_score_one() -> None:
    utterances = ["它贵吗", "那天冷吗", "写什么"]
    references = ["红色的车贵吗", "去年冬天冷吗", "用Python写什么程序"]
    assert score(utterances, references, references) == pytest.approx(dict.fromkeys(KEYS, 1.0))


def test_the_order_of_lines_does_not_change_the_scores() -> None:
    utterances, references, rewrites = random_corpus()
    lines = list(zip(utterances, references, rewrites, strict=True))
    random.Random(1).shuffle(lines)
    shuffled_columns = [list(column) for column in zip(*lines, strict=True)]
    assert score(*shuffled_columns) == pytest.approx(score(utterances, references, rewrites))


def test_every_metric_lies_between_zero_and_one() -> None:
    for line in zip(*random_corpus(), strict=True):
        assert all(0 <= value <= 1 for value in score_one(*line).values())


def test_an_empty_rewrite_counts_as_a_wrong_one() -> None:
    assert set(score_one("吃吗", "吃鱼吗", " ").values()) == {0.0}
    # Exactly one wrong word, as if the rewrite were 错; nothing else of the corpus moves.
    utterances, references = ["它贵吗", "吃吗"], ["红色的车贵吗", "吃鱼吗"]
    assert score(utterances, references, ["红车贵吗", ""]) == score(utterances, references, ["红车贵吗", "错"])


def test_lists_of_different_lengths_are_refused_with_both_lengths() -> None:
    with pytest.raises(ValueError, match="expected 2 references, one per line of utterances, found 1"):
        score(["吃吗", "好"], ["吃鱼吗"], ["吃鱼吗", "好"])
    with pytest.raises(ValueError, match="expected 1 rewrites, one per line of utterances, found 2"):
        score(["吃吗"], ["吃鱼吗"], ["吃鱼吗", "好"])
    with pytest.raises(ValueError, match="expected 1 rewrites, one per line of utterances, found 0"):
        negative_em(["吃吗"], [])


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least one line to score, found 0 utterances"):
        score([], [], [])
    with pytest.raises(ValueError, match="expected at least one line to score, found 0 utterances"):
        negative_em([], [])


def test_an_empty_reference_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2: expected a reference with at least one token, found none"):
        score(["吃吗", "好"], ["吃鱼吗", " "], ["吃鱼吗", "好"])


# --- edits for a list of errors ---------------------------------------------------------------------------------------


def test_a_right_rewrite_has_only_right_insertions() -> None:
    edits = restoration_edits("他为什么喜欢", "小王为什么喜欢爬山", "小王为什么喜欢爬山")
    assert (edits.inserted, edits.missed, edits.wrong) == (["小王", "爬山"], [], [])


def test_a_copied_utterance_misses_every_restoration_and_keeps_the_pronoun() -> None:
    edits = restoration_edits("他为什么喜欢", "小王为什么喜欢爬山", "他为什么喜欢")
    assert (edits.inserted, edits.missed, edits.wrong) == ([], ["小王", "爬山"], ["他"])


def test_right_missed_and_wrong_runs_are_told_apart() -> None:
    edits = restoration_edits("他为什么喜欢", "小王为什么喜欢爬山", "小李为什么喜欢爬山吗")
    assert (edits.inserted, edits.missed, edits.wrong) == (["小", "爬山"], ["王"], ["李", "吗"])


def test_an_utterance_word_that_the_rewrite_loses_is_missed() -> None:
    edits = restoration_edits("贵吗", "红车贵吗", "红车吗")
    assert (edits.inserted, edits.missed, edits.wrong) == (["红车"], ["贵"], [])


def test_edits_put_a_space_only_between_latin_words() -> None:
    assert join_tokens(["用", "python", "3", "写", "ok"]) == "用python 3写ok"
    edits = restoration_edits("天气怎么样", "New York天气怎么样", "天气怎么样")
    assert edits.missed == ["new york"]


def test_nothing_is_missed_or_wrong_exactly_when_the_rewrite_is_an_exact_match() -> None:
    for utterance, reference, rewrite in zip(*random_corpus(), strict=True):
        edits = restoration_edits(utterance, reference, rewrite)
        assert (not edits.missed and not edits.wrong) == (score_one(utterance, reference, rewrite)["em"] == 1)


def test_edits_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        restoration_edits("吃吗", "吃鱼吗", "吃吗").missed = []  # type: ignore[misc]


# --- imports ----------------------------------------------------------------------------------------------------------


def test_importing_the_metrics_loads_nothing_heavy() -> None:
    program = (
        "import sys, rewriter.metrics;"
        "print(sorted({'jieba', 'nltk', 'rouge', 'numpy', 'keras', 'tensorflow', 'jax'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
