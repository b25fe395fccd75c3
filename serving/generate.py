"""Writes the Python stubs of the contract: ``python -m serving.generate [DIRECTORY]``, the repository by default."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
GENERATED = ("rewriter_pb2.py", "rewriter_pb2.pyi", "rewriter_pb2_grpc.py")


def generate(destination: Path) -> None:
    """Writes the GENERATED files into ``destination/serving/pb``; raises CalledProcessError if the compiler refuses."""
    # In a process of its own: the compiler and TensorFlow crash each other. Mapping serving/pb onto the folder of the
    # contract makes the stubs import each other as serving.pb.
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"-Iserving/pb={REPOSITORY / 'proto/rewriter/v1'}",
        f"--python_out={destination}",
        f"--pyi_out={destination}",
        f"--grpc_python_out={destination}",
        "serving/pb/rewriter.proto",
    ]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
