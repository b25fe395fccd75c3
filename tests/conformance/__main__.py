"""Writes what a real TF Serving needs for the suite: ``python -m tests.conformance DIR``.

DIR/rewriter/1     a tiny model
DIR/batching.txt   for a server with batching
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    from target import write_batching_parameters, write_tiny

    folder = Path(sys.argv[1])
    write_tiny(folder / "rewriter", 1)
    write_batching_parameters(folder / "rewriter", folder / "batching.txt")
