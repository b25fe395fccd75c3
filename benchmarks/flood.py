"""What a flood of a given rate does to refusals and rewrites: ``python -m benchmarks.flood build/models --rate 900``.

The front has the model in it, and eight steady callers beside the flood, as in ``benchmarks.chaos``, which floods at a
multiple of what the front can do just then: to compare two fronts, the rate has to be the same.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.chaos.callers import flood, steady
from benchmarks.chaos.processes import fronts
from benchmarks.chaos.report import Figures

_BEFORE_SECONDS = 8.0


async def measure(model_dir: Path, rate: float, seconds: float) -> dict[str, Any]:
    """``rate`` in calls a second, beside those of the steady callers."""
    async with fronts(model_dir, {}) as [front], steady(front.address) as records:
        await asyncio.sleep(_BEFORE_SECONDS)
        began = time.monotonic()
        flooded = await flood(front.address, rate, seconds)
        ended = time.monotonic()
    during = [each for each in (*records, *flooded) if began <= each.at < ended]
    rewrites = [each for each in during if each.usable and not each.passed_through]
    rewritten = Figures.of(rewrites)
    refused = Figures.of([each for each in during if each.result == "OVERLOADED"])
    return {
        "calls": len(during),
        "without a usable turn": sum(not each.usable for each in during),
        "rewrites per second": round(len(rewrites) / (ended - began), 1),
        "rewrite, p50 and p99 ms": [rewritten.p50, rewritten.p99],
        "refusal, p50 and p99 ms": [refused.p50, refused.p99],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--rate", type=float, default=900.0)
    parser.add_argument("--seconds", type=float, default=25.0)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.model_dir, arguments.rate, arguments.seconds)), indent=2))
