"""Prints ``--batching_parameters_file`` for the newest version: ``python -m serving.tf_serving MODEL_DIR``."""

import sys
from pathlib import Path

from serving.tf_serving.buckets import batching_parameters
from serving.tf_serving.catalogue import Catalogue

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(batching_parameters(Catalogue(Path(sys.argv[1])).newest().buckets))
