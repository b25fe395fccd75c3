"""Is it the same model everywhere? ``python benchmarks/parity.py CORPUS --model DIR --exported build/models/1``; JSON.

Greedy rewrites of every line of the corpus: live model against the SavedModel reloaded in a process of its own, and, of
the first lines, TensorFlow against JAX.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rewriter.conversation import Conversation
from rewriter.corpus import read_corpus
from rewriter.export import GREEDY, run_in_fresh_process
from rewriter.features import collate
from rewriter.inference import Rewriter, compile_function, rewrite_greedily

CHUNK = 256
JAX_LINES = 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--exported", type=Path, required=True)
    given = parser.parse_args()
    conversations = [example.conversation for example in read_corpus(given.corpus).examples]
    report = compare_exported(given.model, given.exported, conversations)
    report |= compare_backends(given.model, conversations[:JAX_LINES])
    print(json.dumps(report, indent=2))


def compare_exported(model: Path, exported: Path, conversations: list[Conversation]) -> dict[str, float]:
    rewriter = Rewriter.load(model)
    predict = compile_function(rewriter.model, rewrite_greedily)
    sources = [rewriter.features.encode(conversation) for conversation in conversations]
    sources.sort(key=len)
    same, largest = 0, 0.0
    for start in range(0, len(sources), CHUNK):
        arrays = collate(sources[start : start + CHUNK])
        live, reloaded = predict(arrays), run_in_fresh_process(exported, arrays)[GREEDY]
        same += int((live["positions"] == reloaded["positions"]).all(axis=1).sum())
        largest = max(largest, float(np.abs(live["log_prob"] - reloaded["log_prob"]).max()))
    return {"lines": len(sources), "exported_same": same, "exported_largest_log_prob_difference": largest}


def compare_backends(model: Path, conversations: list[Conversation]) -> dict[str, float]:
    records = [{"history": list(c.history), "utterance": c.utterance} for c in conversations]
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "in.jsonl"
        source.write_text("\n".join(json.dumps(record) for record in records) + "\n", encoding="utf-8")
        found = {}
        for backend in ("tensorflow", "jax"):
            target = Path(directory) / f"{backend}.jsonl"
            command = [sys.executable, "-m", "rewriter", "batch", str(source), "--output", str(target)]
            environment = {**os.environ, "KERAS_BACKEND": backend}
            subprocess.run([*command, "--model", str(model)], check=True, env=environment, stdout=subprocess.DEVNULL)
            found[backend] = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    pairs = list(zip(found["tensorflow"], found["jax"], strict=True))
    return {
        "jax_lines": len(pairs),
        "jax_same": sum(a["rewrite"] == b["rewrite"] for a, b in pairs),
        "jax_largest_confidence_difference": max(abs(a["confidence"] - b["confidence"]) for a, b in pairs),
    }


if __name__ == "__main__":
    main()
