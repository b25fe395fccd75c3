"""Greedy and beam search, as pure functions over a step function; they know nothing of the model.

A step function maps (state, last, index) to (log_probs, state): ``last`` (N,) int32 are the tokens just written (-1
before the first), ``index`` () int32 their number, ``log_probs`` (N, V) float32 those of the next token. A state is any
nest of tensors with N rows. Shapes: B batch, K beams, N rows, V tokens, T steps. All shapes are fixed, for any backend.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

NO_TOKEN = -1
_NEVER = -1e9

StepFunction = Callable[[Any, Any, Any], tuple[Any, Any]]


class GreedyResult(NamedTuple):
    """``log_prob`` includes the end token's; ``tokens`` are NO_TOKEN from the end token on."""

    tokens: Any  # (B, T) int32
    log_prob: Any  # (B,) float32
    finished: Any  # (B,) bool
    state: Any


class BeamResult(NamedTuple):
    """The K best hypotheses, best first. ``score`` is the log-probability divided by the length penalty."""

    tokens: Any  # (B, K, T) int32
    log_prob: Any  # (B, K) float32
    score: Any  # (B, K) float32
    finished: Any  # (B, K) bool


def write_step(steps: Any, index: Any, values: Any, axis: int = -1) -> Any:
    """Writes ``values``, of size 1 along ``axis``, at ``index``; for caches of a fixed length.

    Not ``ops.slice_update``: TensorFlow runs that through XLA, compiled anew for each shape; TF Serving may lack it.
    """
    shape = [1] * len(steps.shape)
    shape[axis] = -1
    is_here = ops.reshape(ops.arange(ops.shape(steps)[axis]) == index, shape)
    return ops.where(is_here, values, steps)


def greedy_search(step: StepFunction, state: Any, end_tokens: Any, max_length: int) -> GreedyResult:
    """Takes the most probable token at each step. ``end_tokens`` (B,) int32: each row has an end token of its own."""
    rows = ops.shape(end_tokens)[0]

    def advance(index: Any, tokens: Any, last: Any, log_prob: Any, finished: Any, state: Any) -> tuple[Any, ...]:
        log_probs, state = step(state, last, index)
        best = ops.cast(ops.argmax(log_probs, axis=-1), "int32")
        log_prob = log_prob + ops.where(finished, 0.0, ops.max(log_probs, axis=-1))
        finished = finished | (best == end_tokens)
        tokens = write_step(tokens, index, ops.where(finished, NO_TOKEN, best)[:, None])
        return index + 1, tokens, best, log_prob, finished, state

    _, tokens, _, log_prob, finished, state = ops.while_loop(
        lambda index, tokens, last, log_prob, finished, state: ops.any(~finished),
        advance,
        (
            ops.zeros((), "int32"),
            ops.full((rows, max_length), NO_TOKEN, "int32"),
            ops.full((rows,), NO_TOKEN, "int32"),
            ops.zeros((rows,), "float32"),
            ops.zeros((rows,), "bool"),
            state,
        ),
        maximum_iterations=max_length,
    )
    return GreedyResult(tokens, log_prob, finished, state)


class _Beams(NamedTuple):
    """Live hypotheses have no end token and are sorted by ``live_log_prob``, finished ones by ``score``; best first."""

    live_tokens: Any  # (B, K, T)
    live_log_prob: Any  # (B, K), _NEVER where there is none
    finished_tokens: Any  # (B, K, T)
    finished_log_prob: Any  # (B, K), _NEVER where there is none
    finished_score: Any  # (B, K)
    last: Any  # (B * K,)
    state: Any  # B * K rows


class _Candidates(NamedTuple):
    """The 2K best one-token extensions of the live hypotheses."""

    log_prob: Any  # (B, 2K)
    tokens: Any  # (B, 2K, T)
    token: Any  # (B, 2K) the token added
    parent: Any  # (B, 2K) the beam extended
    is_end: Any  # (B, 2K) bool


def beam_search(
    step: StepFunction, state: Any, end_tokens: Any, max_length: int, beam_size: int, length_penalty: float = 0.6
) -> BeamResult:
    """Keeps the K best live and the K best finished hypotheses, until no live one can overtake.

    ``state`` has B * K rows, those of one sentence side by side. The score is log p / ((5 + length) / 6) ** penalty
    with the end token counted (Wu et al. 2016, equation 14); those cut at ``max_length`` rank behind finished ones.
    """
    batch = ops.shape(end_tokens)[0]

    def penalty(length: Any) -> Any:
        return ((5.0 + ops.cast(length, "float32")) / 6.0) ** length_penalty

    def not_done(index: Any, beams: _Beams) -> Any:
        # log p only falls, and the penalty is largest at the end: no descendant of a live hypothesis beats this.
        attainable = beams.live_log_prob[:, 0] / penalty(ops.convert_to_tensor(max_length))
        return ops.any(attainable > beams.finished_score[:, -1])

    def advance(index: Any, beams: _Beams) -> tuple[Any, _Beams]:
        log_probs, state = step(beams.state, beams.last, index)
        candidates = _expand(beams, log_probs, end_tokens, index, beam_size)
        beams = _keep_finished(beams, candidates, penalty(index + 1), beam_size)
        return index + 1, _keep_live(beams, candidates, state, beam_size)

    none = ops.full((batch, beam_size), _NEVER, "float32")
    # All beams start equal: only the first counts, or the same hypothesis would fill the beam.
    first = ops.where(ops.arange(beam_size)[None] == 0, 0.0, none)
    empty = ops.full((batch, beam_size, max_length), NO_TOKEN, "int32")
    start = _Beams(empty, first, empty, none, none, ops.full((batch * beam_size,), NO_TOKEN, "int32"), state)
    _, beams = ops.while_loop(not_done, advance, (ops.zeros((), "int32"), start), maximum_iterations=max_length)
    return _best(beams, penalty(ops.convert_to_tensor(max_length)), beam_size)


def _expand(beams: _Beams, log_probs: Any, end_tokens: Any, index: Any, beam_size: int) -> _Candidates:
    batch, num_tokens = ops.shape(end_tokens)[0], ops.shape(log_probs)[-1]
    totals = beams.live_log_prob[:, :, None] + ops.reshape(log_probs, (batch, beam_size, num_tokens))
    log_prob, flat = ops.top_k(ops.reshape(totals, (batch, beam_size * num_tokens)), 2 * beam_size)
    parent, token = ops.cast(flat // num_tokens, "int32"), ops.cast(flat % num_tokens, "int32")
    is_end = token == end_tokens[:, None]
    tokens = ops.take_along_axis(beams.live_tokens, parent[:, :, None], axis=1)
    tokens = write_step(tokens, index, ops.where(is_end, NO_TOKEN, token)[:, :, None])
    return _Candidates(log_prob, tokens, token, parent, is_end)


def _keep_finished(beams: _Beams, candidates: _Candidates, penalty: Any, beam_size: int) -> _Beams:
    ended = candidates.is_end & (candidates.log_prob > _NEVER / 2)
    scores = ops.where(ended, candidates.log_prob / penalty, _NEVER)
    log_prob = ops.concatenate([beams.finished_log_prob, ops.where(ended, candidates.log_prob, _NEVER)], axis=1)
    tokens = ops.concatenate([beams.finished_tokens, candidates.tokens], axis=1)
    score, best = ops.top_k(ops.concatenate([beams.finished_score, scores], axis=1), beam_size)
    return beams._replace(
        finished_tokens=ops.take_along_axis(tokens, best[:, :, None], axis=1),
        finished_log_prob=ops.take_along_axis(log_prob, best, axis=1),
        finished_score=score,
    )


def _keep_live(beams: _Beams, candidates: _Candidates, state: Any, beam_size: int) -> _Beams:
    live_log_prob, best = ops.top_k(ops.where(candidates.is_end, _NEVER, candidates.log_prob), beam_size)
    parent = ops.take_along_axis(candidates.parent, best, axis=1)
    batch = ops.shape(parent)[0]
    rows = ops.reshape(parent + beam_size * ops.arange(batch, dtype="int32")[:, None], (batch * beam_size,))
    return beams._replace(
        live_tokens=ops.take_along_axis(candidates.tokens, best[:, :, None], axis=1),
        live_log_prob=live_log_prob,
        last=ops.reshape(ops.take_along_axis(candidates.token, best, axis=1), (batch * beam_size,)),
        state=keras.tree.map_structure(lambda tensor: ops.take(tensor, rows, axis=0), state),
    )


def _best(beams: _Beams, penalty: Any, beam_size: int) -> BeamResult:
    """Finished hypotheses first; live ones, cut at the limit, fill what is left."""
    is_finished = beams.finished_log_prob > _NEVER / 2
    cut_score = ops.where(beams.live_log_prob > _NEVER / 2, beams.live_log_prob / penalty + _NEVER / 4, _NEVER)
    score = ops.concatenate([beams.finished_score, cut_score], axis=1)
    log_prob = ops.concatenate([beams.finished_log_prob, beams.live_log_prob], axis=1)
    tokens = ops.concatenate([beams.finished_tokens, beams.live_tokens], axis=1)
    finished = ops.concatenate([is_finished, ops.zeros_like(is_finished)], axis=1)
    score, best = ops.top_k(score, beam_size)
    return BeamResult(
        tokens=ops.take_along_axis(tokens, best[:, :, None], axis=1),
        log_prob=ops.take_along_axis(log_prob, best, axis=1),
        score=score,
        finished=ops.take_along_axis(finished, best, axis=1),
    )
