"""Training from prepared arrays, on TensorFlow or JAX. A killed run goes on where its last checkpoint was, exactly."""

import csv
import json
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from rewriter.artefact import average_artefacts, begin_with, load_features, load_model, save_artefact
from rewriter.config import ModelConfig, Recipe, TrainingConfig
from rewriter.dataset import Batch, PreparedExamples, count_batches, training_batches
from rewriter.model import RewriterModel
from rewriter.objectives import OBJECTIVES, CopyLoss, Objective
from rewriter.runs import begin
from rewriter.schedule import RiseStayFall

log = logging.getLogger(__name__)

CHECKPOINT_FILE = "checkpoint.npz"
HISTORY_FILE = "history.csv"
CURVES_FILE = "curves.png"
BEST_DIRECTORY = "best"
_NOT_SCORES = {"epoch", "loss", "target_tokens_per_second", "seconds"}


@dataclass
class Progress:
    """How far a run has come; saved in its checkpoints."""

    epoch: int = 0
    step: int = 0  # within the epoch
    best_score: float = -1.0
    epochs_since_best: int = 0
    loss_sum: float = 0.0  # of the epoch
    target_tokens: int = 0  # of the epoch
    seconds: float = 0.0  # of the epoch
    history: list[dict[str, float]] = field(default_factory=list)


def train_recipe(prepared: Path, output: Path, recipe: Recipe, initial: Path | None = None) -> Path:
    """Runs the stages of a recipe, each from the best model of the one before; returns the folder of the last best.

    The first one begins with the model folder ``initial``, if there is one, else with nothing. Run again after a kill,
    it goes on where it was; raises ValueError if it was begun with another recipe, data or model.
    """
    begin(prepared, output, recipe, initial)
    best = initial
    for name, stage in recipe.stages.items():
        log.info("stage %s", name)
        best = _train_runs(prepared, output / name, stage, recipe.model, initial=best)
    if best is None:
        raise ValueError("expected a recipe with at least one stage, found none")
    return best


def _train_runs(
    prepared: Path, output: Path, config: TrainingConfig, model_config: dict[str, Any], initial: Path | None
) -> Path:
    """Trains a stage once or several times; returns the folder of the best model, or of the mean of the best ones."""
    if config.runs == 1:
        train_stage(prepared, output, config, model_config, initial)
        return output / BEST_DIRECTORY
    seeds = range(config.seed, config.seed + config.runs)
    for seed in seeds:
        log.info("seed %d", seed)
        train_stage(prepared, output / f"seed_{seed}", config.model_copy(update={"seed": seed}), model_config, initial)
    average_artefacts([output / f"seed_{seed}" / BEST_DIRECTORY for seed in seeds], output / BEST_DIRECTORY)
    scores = OBJECTIVES[config.objective](load_model(output / BEST_DIRECTORY), config, prepared).scores()
    log.info("mean of the runs: %s", _spelled(scores))
    return output / BEST_DIRECTORY


def train_stage(
    prepared: Path,
    output: Path,
    config: TrainingConfig,
    model_config: dict[str, Any],
    initial: Path | None = None,
) -> Progress:
    """Trains one stage; ``output`` then holds ``best`` (a model folder), history.csv, curves.png, the
    checkpoint and, with the TensorFlow backend, TensorBoard's events.

    Goes on from the checkpoint in ``output`` if there is one; else starts from the weights of the folder ``initial``,
    else from nothing. Stops early when the validation score has not risen for ``config.patience`` epochs.
    """
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    features, vocabulary = load_features(prepared)
    sizes = {"num_words": len(vocabulary.words), "num_characters": len(vocabulary.characters)}
    own = {"num_encoder_layers": config.encoder_layers, "dropout": config.dropout}
    of_stage = {name: value for name, value in own.items() if value is not None}
    rewriter = RewriterModel(ModelConfig.model_validate({**model_config, **sizes, **of_stage}), features)
    if initial is not None:
        if not vocabulary.begins_with(load_features(initial)[1]):
            raise ValueError(f"{prepared}: expected a vocabulary that begins with that of {initial}, found another")
        begin_with(initial, rewriter)
    objective = OBJECTIVES[config.objective](rewriter, config, prepared)
    parts = [(PreparedExamples.load(prepared / f"{share.path}.npz"), share.share) for share in config.data]
    steps = count_batches(parts, config.batch_size)
    compile_model(objective.model, config, steps * config.epochs, objective.loss)
    output.mkdir(parents=True, exist_ok=True)
    progress = _resume_or_start(output / CHECKPOINT_FILE, objective.model)
    while progress.epoch < config.epochs and progress.epochs_since_best < config.patience:
        _run_epoch(objective, parts, config, steps, progress, output)
        logs = _finish_epoch(progress, objective.scores())
        log.info("%s", _spelled(logs))
        if progress.epochs_since_best == 0:
            save_artefact(output / BEST_DIRECTORY, rewriter, features, vocabulary)
        _write_tensorboard(output, logs, progress.epoch)
        _write_history(output, progress.history)
        save_checkpoint(output / CHECKPOINT_FILE, objective.model, progress)
    return progress


def compile_model(
    model: keras.Model, config: TrainingConfig, total_steps: int, loss: keras.losses.Loss | None = None
) -> None:
    """With the learning rate of ``schedule``; neither biases nor norms nor embeddings decay."""
    rising = min(config.warmup_steps, max(1, total_steps // 5))
    falling = max(1, round(config.falling_share * (total_steps - rising)))
    schedule = RiseStayFall(config.learning_rate, config.final_learning_rate, total_steps, rising, falling)
    optimizer = _optimizer(config, schedule)
    # "table" is the bias of relations.
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embeddings", "table"])
    # XLA compiles every padded shape anew, which costs more than it saves except where JAX has no other way.
    model.compile(optimizer, loss=loss or CopyLoss(), jit_compile=keras.backend.backend() == "jax")


def _optimizer(
    config: TrainingConfig, schedule: keras.optimizers.schedules.LearningRateSchedule
) -> keras.optimizers.Optimizer:
    shared: dict[str, Any] = {"weight_decay": config.weight_decay, "global_clipnorm": config.gradient_clip_norm}
    if config.optimizer == "adamw":
        return keras.optimizers.AdamW(schedule, beta_2=0.98, **shared)
    # Steps of the same size as AdamW's (Liu et al. 2025, "Muon is scalable for LLM training", section 2.2), which keeps
    # what is no matrix: embeddings, biases, norms, and the few numbers that these weigh at the model's ends.
    ends = ["table", "gate", "bonuses", "foretell"]
    return keras.optimizers.Muon(
        schedule, adam_beta_2=0.98, adam_weight_decay=config.weight_decay, exclude_layers=ends, **shared
    )


def _run_epoch(
    objective: Objective,
    parts: Sequence[tuple[PreparedExamples, float]],
    config: TrainingConfig,
    steps: int,
    progress: Progress,
    output: Path,
) -> None:
    """Trains from ``progress.step`` to the end of the epoch, with checkpoints on the way."""
    epoch_seed = (config.seed, progress.epoch)
    batches: Iterator[Batch] = training_batches(parts, config.batch_size, config.word_dropout, epoch_seed)
    batches = islice(batches, progress.step, None)
    bar = tqdm(batches, f"epoch {progress.epoch + 1}/{config.epochs}", steps, initial=progress.step, mininterval=5)
    for batch in bar:
        started = time.monotonic()
        inputs, targets = objective.pose(batch, np.random.default_rng((*epoch_seed, progress.step)))
        loss = float(objective.model.train_on_batch(inputs, targets))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"expected a finite loss, found {loss} in epoch {progress.epoch + 1}, step {progress.step}"
            )
        progress.step += 1
        progress.loss_sum += loss
        progress.target_tokens += int(np.count_nonzero(targets != objective.padding))
        progress.seconds += time.monotonic() - started
        if progress.step % config.checkpoint_every_steps == 0:
            save_checkpoint(output / CHECKPOINT_FILE, objective.model, progress)
            tokens_per_second = progress.target_tokens / progress.seconds
            bar.set_postfix(loss=f"{progress.loss_sum / progress.step:.3f}", tokens_per_s=f"{tokens_per_second:.0f}")


def _finish_epoch(progress: Progress, scores: dict[str, float]) -> dict[str, float]:
    """Books the epoch; what counts is the mean of the scores, as of rewriting rightly and leaving alone rightly."""
    score = sum(scores.values()) / len(scores)
    progress.epochs_since_best = 0 if score > progress.best_score else progress.epochs_since_best + 1
    progress.best_score = max(score, progress.best_score)
    logs = {
        "loss": progress.loss_sum / max(1, progress.step),
        **scores,
        "target_tokens_per_second": progress.target_tokens / max(1e-9, progress.seconds),
        "seconds": progress.seconds,
    }
    progress.history.append({"epoch": progress.epoch + 1, **logs})
    progress.epoch += 1
    progress.step, progress.loss_sum, progress.target_tokens, progress.seconds = 0, 0.0, 0, 0.0
    return logs


def _spelled(values: dict[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in values.items())


def save_checkpoint(path: Path, model: keras.Model, progress: Progress) -> None:
    """Stores weights, random states, optimizer and progress; the old checkpoint stays until the new one is whole."""
    arrays = {f"variable_{i}": ops.convert_to_numpy(v.value) for i, v in enumerate(_variables(model))}
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, allow_pickle=False, progress=np.array(json.dumps(asdict(progress))), **arrays)
    partial.replace(path)


def load_checkpoint(path: Path, model: keras.Model) -> Progress:
    """Restores what ``save_checkpoint`` stored; raises ValueError if it is of another model."""
    with np.load(path) as stored:
        variables = _variables(model)
        if len(stored.files) != len(variables) + 1:
            raise ValueError(f"{path}: expected {len(variables)} variables, found {len(stored.files) - 1}")
        arrays = [stored[f"variable_{index}"] for index in range(len(variables))]
        for variable, array in zip(variables, arrays, strict=True):
            if array.shape != tuple(variable.shape):
                shape = tuple(variable.shape)
                raise ValueError(f"{path}: expected {variable.path} of shape {shape}, found {array.shape}")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        return Progress(**json.loads(str(stored["progress"])))


def _variables(model: keras.Model) -> list[Any]:
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return [*model.variables, *model.optimizer.variables]


def _resume_or_start(checkpoint: Path, model: keras.Model) -> Progress:
    if checkpoint.is_file():
        progress = load_checkpoint(checkpoint, model)
        log.info("going on from %s: epoch %d, step %d", checkpoint, progress.epoch + 1, progress.step)
        return progress
    return Progress()


def _write_history(output: Path, history: list[dict[str, float]]) -> None:
    with (output / HISTORY_FILE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, history[0].keys())
        writer.writeheader()
        writer.writerows(history)
    _draw_curves(output / CURVES_FILE, history)


def _write_tensorboard(output: Path, logs: dict[str, float], epoch: int) -> None:
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    # Not tf.summary.scalar: that asks for TensorBoard where the model is trained, not just where the curves are read.
    scalar = tf.compat.v1.SummaryMetadata(data_class="DATA_CLASS_SCALAR")
    scalar.plugin_data.plugin_name = "scalars"
    with tf.summary.create_file_writer(str(output / "tensorboard")).as_default():
        for name, value in logs.items():
            tf.summary.write(name, tf.constant(value, tf.float32), step=epoch, metadata=scalar)


def _draw_curves(path: Path, history: list[dict[str, float]]) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:  # a bare GPU machine: history.csv has it all
        return
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    loss_axes, score_axes = figure.subplots(1, 2)
    epochs = [row["epoch"] for row in history]
    loss_axes.plot(epochs, [row["loss"] for row in history], marker=".")
    loss_axes.set(xlabel="epoch", ylabel="training loss")
    for name in sorted(history[0].keys() - _NOT_SCORES):
        score_axes.plot(epochs, [row[name] for row in history], marker=".", label=name.replace("_", " "))
    score_axes.set(xlabel="epoch", ylabel="share of validation examples", ylim=(0, 1))
    score_axes.legend()
    figure.savefig(path, dpi=120)
