"""Where the model looked for each word that it wrote: as numbers, and as heat maps (Su et al. 2019, figure 4).

For T-Ptr-lambda that is the two pointing attentions and lambda. The other models of the family show what they have: one
attention over both sides, with the gate between copying and generating; or, of a generator, how probable each word is.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from rewriter.conversation import Conversation
from rewriter.features import UTTERANCE_TURN, Features, Source, collate
from rewriter.inference import rewrite_greedily
from rewriter.model import RewriterModel
from rewriter.pointer import Written, token_log_probs
from rewriter.trust import why_withheld

END = "(end)"
_BANK = -1
# Words of the bank are drawn where more than this points to them; the table has them all.
_BANK_WORTH_DRAWING = 0.01


@dataclass(frozen=True)
class Explanation:
    """T words written, the end of the rewrite last; S places they could have come from. ``gates`` are 0 to 1."""

    text: str
    written: tuple[str, ...]  # T
    places: tuple[str, ...]  # S words
    turns: tuple[int, ...]  # S, indices as in conversation.Span
    in_utterance: np.ndarray  # (S,) bool
    weights: np.ndarray  # (T, S)
    gates: dict[str, np.ndarray]  # (T,) each
    probabilities: np.ndarray  # (T,)
    withheld: str = ""  # why a service would give the utterance back instead


def explain(model: RewriterModel, features: Features, conversation: Conversation) -> Explanation:
    """Rewrites greedily and says how; raises ValueError if there is no history, since the model is not asked then.

    The rewrite is what the model wrote, also where a service would withhold it.
    """
    source = features.encode(conversation)
    if source.nothing_to_do:
        raise ValueError("expected a history and an utterance, found nothing to rewrite")
    arrays = collate([source])
    answer = rewrite_greedily(model, arrays)
    steps = [int(position) for position in ops.convert_to_numpy(answer["positions"])[0] if position >= 0]
    text, _ = features.restore(source, steps)
    finished = bool(ops.convert_to_numpy(answer["finished"])[0])
    log_prob = float(ops.convert_to_numpy(answer["log_prob"])[0])
    withheld = _why_withheld(features, source, steps, log_prob) if finished and steps else "no word or no end found"
    if finished:
        steps.append(source.end)
    memory = model.encode(arrays, training=False)
    written = model.write(memory, np.array([steps], np.int32), training=False)
    log_probs = ops.convert_to_numpy(token_log_probs(written, memory.same_token))[0]
    places = [i for i, surface in enumerate(source.surfaces) if surface is not None or i == source.end]
    in_utterance = source.turn_ids[places] == UTTERANCE_TURN
    weights, gates = _pointing(model.config.output, written, places, in_utterance)
    return Explanation(
        text=text,
        written=tuple(source.surfaces[i] or END for i in steps),
        places=tuple(source.surfaces[i] or END for i in places),
        turns=tuple(_turn(source, i) for i in places),
        in_utterance=in_utterance,
        weights=weights,
        gates=gates,
        probabilities=np.exp(log_probs[np.arange(len(steps)), steps]),
        withheld=withheld,
    )


def _why_withheld(features: Features, source: Source, steps: Sequence[int], log_prob: float) -> str:
    rewrite = features.rewrite(source, steps, log_prob)
    return why_withheld(source.conversation, rewrite, features.config.calibration)


def write_table(path: Path, explanation: Explanation) -> None:
    """Writes all numbers: one row for each written word and place, or one JSON object if ``path`` ends in .json."""
    steps = [
        {"word": word, "probability": float(p), **{name: float(gate[t]) for name, gate in explanation.gates.items()}}
        for t, (word, p) in enumerate(zip(explanation.written, explanation.probabilities, strict=True))
    ]
    places = [
        {"side": "utterance" if in_utterance else "history", "turn": turn, "place": place}
        for place, turn, in_utterance in zip(
            explanation.places, explanation.turns, explanation.in_utterance.tolist(), strict=True
        )
    ]
    if path.suffix == ".json":
        described = {"text": explanation.text, "withheld": explanation.withheld, "places": places, "steps": steps}
        for step, weights in zip(steps, explanation.weights.tolist(), strict=True):
            step["weights"] = weights
        path.write_text(json.dumps(described, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["step", *steps[0], *places[0], "weight"])
        for t, step in enumerate(steps):
            for s, place in enumerate(places):
                writer.writerow([t, *step.values(), *place.values(), float(explanation.weights[t, s])])


def draw(path: Path, explanation: Explanation, font: Path | None = None) -> list[str]:
    """Draws the heat maps as PNG, labelled in ``font`` or else in the first installed one that has all characters.

    Where there is none the words are numbered; the lines that say which word is which are returned.
    """
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    columns = _columns_worth_drawing(explanation)
    labels = [*explanation.written, *(explanation.places[s] for s in columns)]
    font = font or find_font("".join([explanation.text, *labels]))
    legend = [] if font else [f"{number:>4}  {label}" for number, label in enumerate(labels, start=1)]
    if legend:
        labels = [str(number) for number in range(1, len(labels) + 1)]
    properties = FontProperties(fname=str(font) if font else None)
    rows = labels[: len(explanation.written)]
    panels = _panels(explanation, dict(zip(columns, labels[len(rows) :], strict=True)))
    widths = [max(1, len(panel.labels)) for panel in panels]
    figure = Figure(figsize=(1.6 + 0.42 * sum(widths), 1.8 + 0.36 * len(rows)), layout="constrained", dpi=150)
    for axes, panel in zip(figure.subplots(1, len(panels), width_ratios=widths, squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel, properties)
    first = figure.axes[0]
    first.set_yticks(range(len(rows)), rows, fontproperties=properties, parse_math=False)
    if not legend:
        figure.suptitle(explanation.text, fontproperties=properties, parse_math=False)
    figure.savefig(path, format="png")
    return legend


def find_font(characters: str, folders: Sequence[Path] | None = None) -> Path | None:
    """The first font that has all these characters: Matplotlib's own, then those of the folders or of the system."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    found = font_manager.findSystemFonts([str(folder) for folder in folders] if folders is not None else None)
    # The plain weight of a family has the shortest name, or says so.
    found.sort(key=lambda name: ("regular" not in name.lower(), len(name), name))
    for name in (font_manager.findfont("DejaVu Sans"), *found):
        try:
            covered = FT2Font(name).get_charmap()
        except (RuntimeError, OSError):  # a font that FreeType cannot read
            continue
        if all(ord(character) in covered for character in characters):
            return Path(name)
    return None


@dataclass(frozen=True)
class _Panel:
    title: str
    weights: np.ndarray  # (T, columns)
    labels: tuple[str, ...]
    turns: tuple[int, ...] = ()


def _panels(explanation: Explanation, labels: dict[int, str]) -> list[_Panel]:
    """The gates and the two sides; ``labels`` by the places that are drawn."""
    names = tuple(explanation.gates)
    panels = [_Panel("", np.stack([explanation.gates[name] for name in names], axis=1), names)] if names else []
    for title, side in (("history", False), ("utterance", True)):
        columns = [s for s in labels if explanation.in_utterance[s] == side]
        turns = tuple(explanation.turns[s] for s in columns)
        panels.append(_Panel(title, explanation.weights[:, columns], tuple(labels[s] for s in columns), turns))
    return panels


def _draw_panel(axes: Any, panel: _Panel, font: Any) -> None:
    axes.imshow(panel.weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks([])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    tilted = {"rotation": 45, "rotation_mode": "anchor", "ha": "left"}
    if not panel.turns:
        axes.set_xticks(range(len(panel.labels)), panel.labels, **tilted)
        for row, column in np.ndindex(panel.weights.shape):
            value = panel.weights[row, column]
            color = "white" if value > 0.5 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=color)
        return
    axes.set_xticks(range(len(panel.labels)), panel.labels, fontproperties=font, parse_math=False, **tilted)
    axes.set_xlabel(panel.title, labelpad=16)
    for turn, group in groupby(range(len(panel.turns)), key=panel.turns.__getitem__):
        columns = list(group)
        name = "bank" if turn == _BANK else f"turn {turn + 1}"
        axes.text((columns[0] + columns[-1]) / 2, len(panel.weights) - 0.3, name, ha="center", va="top", fontsize=8)
        if columns[0] > 0:
            axes.axvline(columns[0] - 0.5, color="black", linewidth=0.8)


def _columns_worth_drawing(explanation: Explanation) -> list[int]:
    strongest = explanation.weights.max(axis=0)
    return [s for s, turn in enumerate(explanation.turns) if turn != _BANK or strongest[s] > _BANK_WORTH_DRAWING]


def _turn(source: Source, position: int) -> int:
    place = source.places[position]
    if place is not None:
        return place[0]
    return len(source.conversation.history) if position == source.end else _BANK


def _pointing(
    output: str, written: Written, places: Sequence[int], in_utterance: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """What each kind of output has to show: weights (T, S) of the places, and gates (T,)."""
    copied = ops.convert_to_numpy(written.copied)[0][:, places]
    history_gate = ops.convert_to_numpy(written.history_gate)[0]
    if output == "gen":
        return ops.convert_to_numpy(written.generated)[0][:, places], {}
    if output == "ptr_lambda":
        history, utterance = _shares(np.where(in_utterance, 0, copied)), _shares(np.where(in_utterance, copied, 0))
        return history + utterance, {"λ": history_gate}
    gates = {"on history": history_gate}
    if output == "ptr_gen":
        gates["p_gen"] = 1 - copied.sum(axis=-1)
    return _shares(copied), gates


def _shares(weights: np.ndarray) -> np.ndarray:
    """Each row divided by its sum; a row without weight, whose side counted for nothing, stays as it is."""
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)
