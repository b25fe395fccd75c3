"""Searches over hand-worked Markov models. Tokens are a = 0, b = 1, …; the row of a table is the token just written."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from keras import ops

from rewriter.decoding import NO_TOKEN, beam_search, greedy_search

_NEVER = -1e9
A, B, END = 0, 1, 2


def _log(table: Any) -> np.ndarray:
    probabilities = np.asarray(table, np.float32)
    return np.where(probabilities > 0, np.log(np.maximum(probabilities, 1e-30)), _NEVER).astype(np.float32)


def _markov(*tables: Any) -> Callable[..., Any]:
    """A step function without a state of its own; row r of the N rows follows the table of its sentence.

    A table has one row more than tokens: the last row, which -1 picks, is for the first token.
    """
    log_tables = np.stack([_log(table) for table in tables])

    def step(state: Any, last: Any, index: Any) -> tuple[Any, Any]:
        last = np.array(last)
        sentence = np.arange(len(last)) // (len(last) // len(tables))
        return ops.convert_to_tensor(log_tables[sentence, last]), state

    return step


def _ends(*tokens: int) -> Any:
    return ops.convert_to_tensor(np.array(tokens, np.int32))


def _penalty(length: int) -> float:
    return ((5 + length) / 6) ** 0.6


# a leads greedy astray: it is likely itself, but every way on from it is unlikely.
TRAP = [
    [0.30, 0.30, 0.40],  # after a
    [0.05, 0.05, 0.90],  # after b
    [0.00, 0.00, 1.00],  # after the end, never asked
    [0.60, 0.40, 0.00],  # first
]


def test_greedy_takes_the_best_token_of_each_step() -> None:
    # a 0.6, then the end 0.4
    found = greedy_search(_markov(TRAP), (), _ends(END), max_length=4)
    np.testing.assert_array_equal(found.tokens, [[A, NO_TOKEN, NO_TOKEN, NO_TOKEN]])
    np.testing.assert_allclose(np.exp(found.log_prob), [0.24], rtol=1e-5)
    assert np.array(found.finished).all()


def test_a_beam_finds_what_greedy_walks_past() -> None:
    # Finished after two steps: b end 0.4 * 0.9 = 0.36 and a end 0.6 * 0.4 = 0.24; both have length 2. The best live
    # ones, a a and a b with 0.18, can at most reach log 0.18 / penalty(4) = -1.34, below log 0.24 / penalty(2) = -1.30.
    found = beam_search(_markov(TRAP), (), _ends(END), max_length=4, beam_size=2)
    np.testing.assert_array_equal(found.tokens, [[[B, -1, -1, -1], [A, -1, -1, -1]]])
    np.testing.assert_allclose(np.exp(found.log_prob), [[0.36, 0.24]], rtol=1e-5)
    np.testing.assert_allclose(found.score, [[np.log(0.36) / _penalty(2), np.log(0.24) / _penalty(2)]], rtol=1e-5)
    assert np.array(found.finished).all()


# At once: 0.30. a end: 0.70 * 0.40 = 0.28. Per unit of penalty the longer one is better: -1.160 > -1.204.
LONGER = [[0.6, 0.0, 0.4], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.7, 0.0, 0.3]]


@pytest.mark.parametrize(("length_penalty", "best"), [(0.6, A), (0.0, NO_TOKEN)])
def test_the_length_penalty_lets_longer_hypotheses_win(length_penalty: float, best: int) -> None:
    found = beam_search(_markov(LONGER), (), _ends(END), max_length=3, beam_size=2, length_penalty=length_penalty)
    assert np.array(found.tokens)[0, 0].tolist() == [best, -1, -1]


def test_a_long_hypothesis_may_overtake_late() -> None:
    # "a a a end" 0.9 ** 3 = 0.73 is found in step 4, long after "end" 0.05 and "b end" 0.04 have filled the beam.
    table = [[0.9, 0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.91, 0.04, 0.05]]
    second_order = {(A, A): [0.0, 0.0, 1.0]}

    def step(state: Any, last: Any, index: Any) -> tuple[Any, Any]:
        previous, now = np.array(state), np.array(last)
        rows = [second_order.get((int(p), int(n)), table[int(n)]) for p, n in zip(previous, now, strict=True)]
        return ops.convert_to_tensor(_log(rows)), ops.convert_to_tensor(now)

    found = beam_search(step, _ends(-1, -1), _ends(END), max_length=6, beam_size=2)
    assert np.array(found.tokens)[0, 0].tolist() == [A, A, -1, -1, -1, -1]
    np.testing.assert_allclose(np.exp(np.array(found.log_prob)[0, 0]), 0.91 * 0.9, rtol=1e-5)


def test_the_search_goes_on_while_a_longer_hypothesis_could_still_win() -> None:
    # At once: end 0.30, score log 0.30 = -1.204. Live: a 0.28, log -1.273: less, but it can still be divided by more.
    # a end has the same probability and length 2: -1.273 / 1.097 = -1.160, the best of all.
    others = [0.14, 0.14, 0.14]
    table = [[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]] * 6 + [[0.28, 0.14, 0.30, *others]]
    found = beam_search(_markov(table), (), _ends(END), max_length=4, beam_size=1)
    assert np.array(found.tokens)[0].tolist() == [[A, -1, -1, -1]]
    np.testing.assert_allclose(found.score, [[np.log(0.28) / _penalty(2)]], rtol=1e-5)


def test_a_search_stops_when_every_row_has_ended() -> None:
    indices: list[int] = []
    at_once = [[0.0, 0.0, 1.0]] * 4
    plain = _markov(at_once, at_once)

    def step(state: Any, last: Any, index: Any) -> tuple[Any, Any]:
        indices.append(int(index))
        return plain(state, last, index)

    greedy = greedy_search(step, (), _ends(END, END), max_length=5)
    assert indices == [0]
    np.testing.assert_array_equal(greedy.tokens, np.full((2, 5), NO_TOKEN))
    np.testing.assert_allclose(greedy.log_prob, [0.0, 0.0], atol=1e-6)
    assert np.array(greedy.finished).all()
    indices.clear()
    beams = beam_search(step, (), _ends(END, END), max_length=5, beam_size=1)
    assert indices == [0]
    np.testing.assert_array_equal(beams.tokens, np.full((2, 1, 5), NO_TOKEN))
    assert np.array(beams.finished).all()


def test_a_search_without_an_end_is_cut_and_says_so() -> None:
    endless = [[0.6, 0.4, 0.0]] * 4
    greedy = greedy_search(_markov(endless), (), _ends(END), max_length=3)
    np.testing.assert_array_equal(greedy.tokens, [[A, A, A]])
    np.testing.assert_allclose(np.exp(greedy.log_prob), [0.6**3], rtol=1e-5)
    assert not np.array(greedy.finished).any()
    beams = beam_search(_markov(endless), (), _ends(END), max_length=3, beam_size=2)
    assert np.array(beams.tokens)[0, 0].tolist() == [A, A, A]
    np.testing.assert_allclose(np.exp(beams.log_prob), [[0.216, 0.144]], rtol=1e-5)
    assert not np.array(beams.finished).any()


def test_a_finished_hypothesis_ranks_before_any_that_was_cut() -> None:
    # b end has 0.001; a a a, without an end, 0.999.
    table = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.999, 0.001, 0.0]]
    found = beam_search(_markov(table), (), _ends(END), max_length=3, beam_size=3)
    assert np.array(found.tokens)[0, 0].tolist() == [B, -1, -1]
    flags = np.array(found.finished)[0].tolist()
    assert flags == sorted(flags, reverse=True) and flags[0] and not flags[-1]


def test_an_end_in_the_first_place_leaves_an_empty_hypothesis() -> None:
    table = [[0.1, 0.0, 0.9]] * 3 + [[0.1, 0.0, 0.9]]
    greedy = greedy_search(_markov(table), (), _ends(END), max_length=3)
    assert np.array(greedy.tokens).tolist() == [[-1, -1, -1]]
    beams = beam_search(_markov(table), (), _ends(END), max_length=3, beam_size=2)
    assert np.array(beams.tokens)[0].tolist() == [[-1, -1, -1], [A, -1, -1]]
    np.testing.assert_allclose(np.exp(beams.log_prob), [[0.9, 0.09]], rtol=1e-5)


def test_of_equally_likely_tokens_the_first_is_taken() -> None:
    table = [[0.25, 0.25, 0.5]] * 3 + [[0.5, 0.5, 0.0]]
    greedy = greedy_search(_markov(table), (), _ends(END), max_length=3)
    beams = beam_search(_markov(table), (), _ends(END), max_length=3, beam_size=2)
    assert np.array(greedy.tokens)[0].tolist() == [A, -1, -1]
    assert np.array(beams.tokens)[0].tolist() == [[A, -1, -1], [B, -1, -1]]
    np.testing.assert_allclose(np.exp(beams.log_prob), [[0.25, 0.25]], rtol=1e-5)


def test_each_row_ends_with_its_own_token() -> None:
    # a then b then c, for certain: ending with b leaves a, ending with c leaves a b.
    chain = [[0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]
    greedy = greedy_search(_markov(chain, chain), (), _ends(B, END), max_length=4)
    np.testing.assert_array_equal(greedy.tokens, [[A, -1, -1, -1], [A, B, -1, -1]])
    beams = beam_search(_markov(chain, chain), (), _ends(B, END), max_length=4, beam_size=2)
    np.testing.assert_array_equal(np.array(beams.tokens)[:, 0], [[A, -1, -1, -1], [A, B, -1, -1]])
    np.testing.assert_allclose(np.array(beams.log_prob)[:, 0], [0, 0], atol=1e-6)


def test_rows_of_a_batch_do_not_know_of_each_other() -> None:
    together = beam_search(_markov(TRAP, LONGER), (), _ends(END, END), max_length=4, beam_size=2)
    for row, table in enumerate((TRAP, LONGER)):
        alone = beam_search(_markov(table), (), _ends(END), max_length=4, beam_size=2)
        np.testing.assert_array_equal(np.array(together.tokens)[row], np.array(alone.tokens)[0])
        np.testing.assert_allclose(np.array(together.score)[row], np.array(alone.score)[0], rtol=1e-6)


class _SecondOrder:
    """A random model whose state matters: the next token depends on the last two, of which the state has the older."""

    def __init__(self, num_tokens: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        # Rows: the token before last, the last one; -1 picks the last row of each.
        self.log_probs = np.log(rng.dirichlet(np.full(num_tokens, 0.7), (num_tokens + 1, num_tokens + 1)))
        self.num_tokens = num_tokens

    def step(self, state: Any, last: Any, index: Any) -> tuple[Any, Any]:
        older = np.array(state["older"])[:, 0]
        newer = np.array(last)
        log_probs = self.log_probs[older, newer].astype(np.float32)
        return ops.convert_to_tensor(log_probs), {"older": ops.convert_to_tensor(newer[:, None])}

    def start(self, rows: int) -> dict[str, Any]:
        return {"older": ops.full((rows, 1), -1, "int32")}

    def log_prob(self, tokens: tuple[int, ...]) -> float:
        padded = (-1, -1, *tokens)
        return float(sum(self.log_probs[padded[i], padded[i + 1], token] for i, token in enumerate(tokens)))

    def all_finished(self, end: int, max_length: int) -> dict[tuple[int, ...], float]:
        """Every hypothesis that ends within the limit, with its score."""
        words = [token for token in range(self.num_tokens) if token != end]
        bodies = itertools.chain.from_iterable(itertools.product(words, repeat=n) for n in range(max_length))
        return {body: self.log_prob((*body, end)) / _penalty(len(body) + 1) for body in bodies}


def _hypotheses(found: Any, row: int) -> list[tuple[int, ...]]:
    return [tuple(int(t) for t in tokens if t != NO_TOKEN) for tokens in np.array(found.tokens)[row]]


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_wide_enough_is_exhaustive_search(seed: int) -> None:
    """Three tokens, four steps: 1 + 2 + 4 + 8 finished hypotheses, never more than 16 live ones."""
    model, ends = _SecondOrder(3, seed), (2, 0)
    found = beam_search(model.step, model.start(32), _ends(*ends), max_length=4, beam_size=16)
    for row, end in enumerate(ends):
        expected = model.all_finished(end, 4)
        ranked = sorted(expected, key=lambda body: -expected[body])
        assert _hypotheses(found, row)[:15] == ranked
        np.testing.assert_allclose(np.array(found.score)[row, :15], [expected[body] for body in ranked], rtol=1e-4)
        assert np.array(found.finished)[row].tolist() == [True] * 15 + [False]


@pytest.mark.parametrize("seed", range(6))
def test_the_best_hypotheses_are_sorted_distinct_and_worth_what_they_say(seed: int) -> None:
    model, end = _SecondOrder(5, seed), 3
    found = beam_search(model.step, model.start(4), _ends(end), max_length=6, beam_size=4)
    hypotheses, scores, finished = _hypotheses(found, 0), np.array(found.score)[0], np.array(found.finished)[0]
    assert len(set(hypotheses)) == 4 and finished.all()
    assert (np.diff(scores) <= 0).all()
    for hypothesis, log_prob, score in zip(hypotheses, np.array(found.log_prob)[0], scores, strict=True):
        expected = model.log_prob((*hypothesis, end))
        assert log_prob == pytest.approx(expected, rel=1e-4)
        assert score == pytest.approx(expected / _penalty(len(hypothesis) + 1), rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_greedy_as_long_as_greedy_goes_on(seed: int) -> None:
    """With an end that is never the second choice: else a beam of one keeps that shorter hypothesis as well."""
    model, steps = _SecondOrder(4, seed), 5
    end = 3
    model.log_probs[..., end] = _NEVER
    model.log_probs[model.log_probs[..., 0].argmax() // 5, 0, end] = 0.0  # somewhere it is certain
    model.log_probs[2, 1, end] = 0.0
    greedy = greedy_search(model.step, model.start(1), _ends(end), steps)
    beam = beam_search(model.step, model.start(1), _ends(end), steps, beam_size=1)
    np.testing.assert_array_equal(np.array(beam.tokens)[:, 0], greedy.tokens)
    np.testing.assert_allclose(np.array(beam.log_prob)[:, 0], greedy.log_prob, rtol=1e-5)
    np.testing.assert_array_equal(np.array(beam.finished)[:, 0], greedy.finished)


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_never_worse_than_greedy(seed: int) -> None:
    model, end, steps = _SecondOrder(4, seed), 3, 8
    greedy = greedy_search(model.step, model.start(1), _ends(end), steps)
    beam = beam_search(model.step, model.start(1), _ends(end), steps, beam_size=1)
    length = int((np.array(greedy.tokens) != NO_TOKEN).sum()) + 1
    assert np.array(greedy.finished).all()
    assert float(np.array(beam.score)[0, 0]) >= float(np.array(greedy.log_prob)[0]) / _penalty(length) - 1e-5


def test_greedy_leaves_the_state_of_its_last_step() -> None:
    found = greedy_search(
        lambda state, last, index: (_markov(TRAP)((), last, index)[0], state + 1), ops.zeros((1,)), _ends(END), 4
    )
    np.testing.assert_array_equal(found.state, [2.0])
