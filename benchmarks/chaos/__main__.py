"""``python -m benchmarks.chaos [--model-dir build/models] [--only WORDS] [--quick]``; see the package."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

from benchmarks.chaos import embedded, with_tf_serving
from benchmarks.chaos.processes import write_tiny_model
from benchmarks.chaos.report import Result, table, write


async def main(arguments: argparse.Namespace) -> int:
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="rewriter-chaos-") as folder:
        model_dir = Path(folder) / "models"
        await asyncio.to_thread(write_tiny_model, model_dir)
        async for found in _results(arguments, model_dir, Path(folder)):
            results.append(found)
            print(f"{found.name}: {'good' if not found.faults else '; '.join(found.faults)}", file=sys.stderr)
    print(table(results))
    write(arguments.output, results)
    return 1 if any(found.faults for found in results) or not results else 0


async def _results(arguments: argparse.Namespace, model_dir: Path, folder: Path) -> AsyncIterator[Result]:
    seconds = 3.0 if arguments.quick else arguments.seconds
    wanted = [each for each in with_tf_serving.scenarios() if arguments.only in each.name]
    if wanted:
        async with with_tf_serving.setting(model_dir, folder) as where:
            for scenario in wanted:
                yield await with_tf_serving.run(scenario, where, seconds)
    flood_seconds, soak_seconds = (5.0, 12.0) if arguments.quick else (60.0, arguments.soak_seconds)
    others: dict[str, Callable[[], Awaitable[Result]]] = {
        "SIGTERM under load": lambda: embedded.restart_under_load(model_dir, seconds),
        "soak": lambda: embedded.soak(model_dir, soak_seconds),
        "hostile calls": lambda: embedded.hostile_calls_beside(model_dir, seconds),
    }
    if arguments.model_dir is not None:
        flood = partial(embedded.three_times_capacity, arguments.model_dir, seconds, flood_seconds)
        others["three times capacity"] = flood
    for name, run in others.items():
        if arguments.only in name:
            yield await run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser("benchmarks.chaos", description=__doc__)
    parser.add_argument(
        "--model-dir",
        type=Path,
        help="what `rewriter export` wrote, for three times its capacity; all else is asked of a tiny model",
    )
    parser.add_argument("--output", type=Path, default=Path("build/chaos.json"))
    parser.add_argument("--only", default="", help="scenarios with these words in their names")
    parser.add_argument("--seconds", type=float, default=10.0, help="before, during and after each trouble")
    parser.add_argument("--soak-seconds", type=float, default=600.0)
    parser.add_argument("--quick", action="store_true", help="a few seconds of each: to see that it works")
    sys.exit(asyncio.run(main(parser.parse_args())))
