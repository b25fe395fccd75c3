"""Corpus metrics for rewrites, comparable with the published ones.

The definitions are those of the RUN evaluation (Liu et al., EMNLP 2020, "Incomplete Utterance Rewriting as Semantic
Segmentation"), whose restoration F comes from Pan et al. (EMNLP 2019). Start at `score`; `negative_em` must stand
beside it, because nothing in `score` punishes a system that rewrites turns which need no rewriting.

Everything is a pure function of strings and needs only jieba. A metric is a share between 0 and 1.
"""

import difflib
import functools
import itertools
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Tokens = list[str]
Ngram = tuple[str, ...]

# RUN scores an empty rewrite as one wrong word. jieba cuts at "<", so this one is equal to no token of a text.
EMPTY_REWRITE = "<empty>"


class _Line(NamedTuple):
    """The tokens of one corpus line; `reference` and `rewrite` have at least one."""

    utterance: Tokens
    reference: Tokens
    rewrite: Tokens


class RestorationCounts(NamedTuple):
    """Of one line: the restored n-grams of the rewrite and of the reference, and how many of them are the same."""

    common: int
    in_rewrite: int
    in_reference: int


@dataclass(frozen=True)
class RestorationEdits:
    """How a rewrite differs from its reference, as runs of (lower-cased) text in reading order.

    inserted: what the reference adds to the utterance and the rewrite has too.
    missed:   what the reference has and the rewrite lacks.
    wrong:    what the rewrite has and the reference lacks: a wrong insertion, or a word that should have been replaced.

    Text restored at the wrong place is both missed and wrong. `missed` and `wrong` are empty exactly when the rewrite
    is an exact match.
    """

    inserted: list[str]
    missed: list[str]
    wrong: list[str]


def score(utterances: Sequence[str], references: Sequence[str], rewrites: Sequence[str]) -> dict[str, float]:
    """Score a corpus of rewrites; line i of the three sequences belongs together.

    em: share of lines whose metric tokens equal those of the reference.
    bleu1, bleu2, bleu4: corpus BLEU with one reference and no smoothing, equal to nltk's `corpus_bleu`.
    rouge1, rouge2, rougeL: mean F over the lines, equal to that of pltrdy's `rouge` 0.3.2 (see `_rouge_sentences`).
    f1, f2, f3: restoration F of n-grams. A token is *restored* when the utterance does not have it. Over the lines
        whose reference restores something, compare the set of n-grams of the rewrite that contain a token restored by
        the rewrite with the set of n-grams of the reference that contain a token restored by the reference; sum the
        three counts (common, rewrite, reference) over the lines, then take precision, recall and F once. 0 when no
        line has anything to restore.

    An empty rewrite counts as one wrong word. Two habits of the originals are kept: a line of fewer than n tokens has
    no n-gram to get right, so even a copy of the reference scores 0 on it, and ROUGE adds an epsilon to its
    denominators, so that a perfect score is 1 only to eight digits.
    """
    _require_parallel(utterances=utterances, references=references, rewrites=rewrites)
    texts = zip(utterances, references, rewrites, strict=True)
    lines = [_line(number, *line_texts) for number, line_texts in enumerate(texts, start=1)]
    rouge = [_rouge(line) for line in lines]
    return {
        "em": _mean([line.rewrite == line.reference for line in lines]),
        "bleu1": _bleu(lines, 1),
        "bleu2": _bleu(lines, 2),
        "bleu4": _bleu(lines, 4),
        "rouge1": _mean([rouge1 for rouge1, _, _ in rouge]),
        "rouge2": _mean([rouge2 for _, rouge2, _ in rouge]),
        "rougeL": _mean([rouge_l for _, _, rouge_l in rouge]),
        "f1": _restoration_f(lines, 1),
        "f2": _restoration_f(lines, 2),
        "f3": _restoration_f(lines, 3),
    }


def negative_em(utterances: Sequence[str], rewrites: Sequence[str]) -> float:
    """Share of (self-contained) utterances returned untouched, by equality of metric tokens."""
    _require_parallel(utterances=utterances, rewrites=rewrites)
    pairs = zip(utterances, rewrites, strict=True)
    return _mean([metric_tokens(utterance) == metric_tokens(rewrite) for utterance, rewrite in pairs])


def exact_match(references: Sequence[str], rewrite: str) -> bool:
    """True if the metric tokens of the rewrite equal those of any of the references; an empty rewrite never does."""
    return metric_tokens(rewrite) in [metric_tokens(reference) or [EMPTY_REWRITE] for reference in references]


def restoration_counts(utterance: str, reference: str, rewrite: str) -> tuple[RestorationCounts, ...]:
    """What one line adds to f1, f2 and f3: their counts, so that any set of lines can be scored from its lines'."""
    line = _line(1, utterance, reference, rewrite)
    return tuple(_restoration_counts(line, n) for n in (1, 2, 3))


def restoration_edits(utterance: str, reference: str, rewrite: str) -> RestorationEdits:
    """What the rewrite of one utterance restored, missed and got wrong, for a list of errors."""
    utterance_tokens, reference_tokens, rewrite_tokens = map(metric_tokens, (utterance, reference, rewrite))
    _, kept = _aligned(utterance_tokens, reference_tokens)
    right, right_in_rewrite = _aligned(reference_tokens, rewrite_tokens)
    return RestorationEdits(
        inserted=_runs(reference_tokens, right - kept),
        missed=_runs(reference_tokens, set(range(len(reference_tokens))) - right),
        wrong=_runs(rewrite_tokens, set(range(len(rewrite_tokens))) - right_in_rewrite),
    )


def metric_tokens(text: str) -> list[str]:
    """Cut text as RUN does: jieba words, all-Chinese ones into characters; then lower-case, without white space.

    The cut comes before the lower-casing because jieba's lexicon knows words such as "T恤" only in one case.
    """
    tokens: Tokens = []
    for word in _jieba().cut(text):
        tokens.extend(word if _is_chinese(word) else [word])
    return [token.lower() for token in tokens if not token.isspace()]


def join_tokens(tokens: Tokens) -> str:
    """Tokens as text, with a space only between two that would otherwise read as one word."""
    text = tokens[0]
    for token in tokens[1:]:
        needs_space = _is_latin_or_digit(text[-1]) and _is_latin_or_digit(token[0])
        text += f" {token}" if needs_space else token
    return text


@functools.cache
def _jieba() -> Any:
    """A tokenizer of our own: words that others add to jieba's global lexicon must not change the metrics."""
    import jieba  # type: ignore[import-untyped, unused-ignore]

    jieba.setLogLevel(logging.WARNING)
    return jieba.Tokenizer()


def _is_chinese(word: str) -> bool:
    return all("\u4e00" <= character <= "\u9fa5" for character in word)


def _require_parallel(**columns: Sequence[str]) -> None:
    first, *_ = columns
    expected = len(columns[first])
    for name, column in columns.items():
        if len(column) != expected:
            raise ValueError(f"expected {expected} {name}, one per line of {first}, found {len(column)}")
    if expected == 0:
        raise ValueError(f"expected at least one line to score, found 0 {first}")


def _line(number: int, utterance: str, reference: str, rewrite: str) -> _Line:
    reference_tokens = metric_tokens(reference)
    if not reference_tokens:
        raise ValueError(f"line {number}: expected a reference with at least one token, found none")
    return _Line(metric_tokens(utterance), reference_tokens, metric_tokens(rewrite) or [EMPTY_REWRITE])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ngrams(tokens: Sequence[str], n: int) -> Iterator[Ngram]:
    return (tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))


def _bleu(lines: Sequence[_Line], order: int) -> float:
    """Corpus BLEU up to n-grams of `order`, all weighted alike: brevity penalty * exp(mean_n log p_n)."""
    precisions = [_ngram_precision(lines, n) for n in range(1, order + 1)]
    if 0 in precisions:  # nltk puts the smallest float in place of the 0, and arrives below 1e-76
        return 0.0
    reference_length = sum(len(line.reference) for line in lines)
    rewrite_length = sum(len(line.rewrite) for line in lines)
    brevity_penalty = math.exp(min(0.0, 1 - reference_length / rewrite_length))
    return brevity_penalty * math.exp(math.fsum(math.log(precision) for precision in precisions) / order)


def _ngram_precision(lines: Sequence[_Line], n: int) -> float:
    """Share of the n-grams of all rewrites found in their references, each as often as the reference has it."""
    found = total = 0
    for line in lines:
        rewrite_counts = Counter(_ngrams(line.rewrite, n))
        found += (rewrite_counts & Counter(_ngrams(line.reference, n))).total()
        total += max(1, rewrite_counts.total())  # like nltk, a line too short for any n-gram counts as one failure
    return found / total


def _rouge(line: _Line) -> tuple[float, float, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L F of one line; 0 where the library raises, on a side made of full stops only."""
    reference, rewrite = _rouge_sentences(line.reference), _rouge_sentences(line.rewrite)
    if not reference or not rewrite:
        return 0.0, 0.0, 0.0
    return _rouge_n(reference, rewrite, 1), _rouge_n(reference, rewrite, 2), _rouge_l(reference, rewrite)


def _rouge_sentences(tokens: Tokens) -> list[Tokens]:
    """The sentences that `rouge` 0.3.2 sees in the tokens joined by spaces.

    It cuts at every ".", also inside a token such as "3.5", and drops the "." itself. Two full stops with a space
    between them leave a sentence of one empty word, which counts like any other word.
    """
    return [sentence.split() or [""] for sentence in " ".join(tokens).split(".") if sentence]


def _words(sentences: list[Tokens]) -> Tokens:
    return list(itertools.chain.from_iterable(sentences))


def _rouge_n(reference: list[Tokens], rewrite: list[Tokens], n: int) -> float:
    """F over the two sets of n-grams, which run across the ends of sentences."""
    reference_ngrams = set(_ngrams(_words(reference), n))
    rewrite_ngrams = set(_ngrams(_words(rewrite), n))
    common = len(reference_ngrams & rewrite_ngrams)
    precision = common / len(rewrite_ngrams) if rewrite_ngrams else 0.0
    recall = common / len(reference_ngrams) if reference_ngrams else 0.0
    return 2 * precision * recall / (precision + recall + 1e-8)


def _rouge_l(reference: list[Tokens], rewrite: list[Tokens]) -> float:
    """F_beta with beta = P / R over distinct words; a word is common if it is in the LCS of some pair of sentences."""
    common: set[str] = set()
    for reference_sentence in reference:
        for rewrite_sentence in rewrite:
            common.update(_longest_common_subsequence(reference_sentence, rewrite_sentence))
    precision = len(common) / len(set(_words(rewrite)))
    recall = len(common) / len(set(_words(reference)))
    beta = precision / (recall + 1e-12)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision + 1e-12)


def _longest_common_subsequence(reference: Tokens, rewrite: Tokens) -> Tokens:
    """One longest common subsequence, last word first.

    Where there are several, the distinct words in them may differ in number and with them ROUGE-L, so the choice is
    the library's: from the ends backwards, take equal words, else drop a word of the rewrite unless that costs length.
    """
    lengths = [[0] * (len(rewrite) + 1) for _ in range(len(reference) + 1)]  # lengths[i][j]: of the first i and j words
    for i, reference_word in enumerate(reference, 1):
        for j, rewrite_word in enumerate(rewrite, 1):
            equal = reference_word == rewrite_word
            lengths[i][j] = lengths[i - 1][j - 1] + 1 if equal else max(lengths[i - 1][j], lengths[i][j - 1])
    common: Tokens = []
    i, j = len(reference), len(rewrite)
    while i and j:
        if reference[i - 1] == rewrite[j - 1]:
            i, j = i - 1, j - 1
            common.append(reference[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return common


def _restoration_f(lines: Sequence[_Line], n: int) -> float:
    """2PR / (P + R) with P = common / in_rewrite and R = common / in_reference, each summed over the lines."""
    counts = [_restoration_counts(line, n) for line in lines]
    common = sum(line.common for line in counts)
    return 2 * common / sum(line.in_rewrite + line.in_reference for line in counts) if common else 0.0


def _restoration_counts(line: _Line, n: int) -> RestorationCounts:
    if set(line.reference) <= set(line.utterance):
        return RestorationCounts(0, 0, 0)
    reference_ngrams = _restored_ngrams(line.reference, line.utterance, n)
    rewrite_ngrams = _restored_ngrams(line.rewrite, line.utterance, n)
    return RestorationCounts(len(reference_ngrams & rewrite_ngrams), len(rewrite_ngrams), len(reference_ngrams))


def _restored_ngrams(tokens: Tokens, utterance: Tokens, n: int) -> set[Ngram]:
    restored = set(tokens) - set(utterance)
    return {ngram for ngram in _ngrams(tokens, n) if not restored.isdisjoint(ngram)}


def _aligned(left: Tokens, right: Tokens) -> tuple[set[int], set[int]]:
    """The positions of `left` and of `right` that difflib matches with each other."""
    blocks = difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    left_positions = {block.a + offset for block in blocks for offset in range(block.size)}
    right_positions = {block.b + offset for block in blocks for offset in range(block.size)}
    return left_positions, right_positions


def _runs(tokens: Tokens, positions: set[int]) -> list[str]:
    """The text of each unbroken run of positions."""
    runs: list[Tokens] = []
    for position in sorted(positions):
        if position - 1 not in positions:
            runs.append([])
        runs[-1].append(tokens[position])
    return [join_tokens(run) for run in runs]


def _is_latin_or_digit(character: str) -> bool:
    return character.isascii() and character.isalnum()
