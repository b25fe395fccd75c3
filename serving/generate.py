"""Writes the Python stubs of the contracts: ``python -m serving.generate [DIRECTORY]``, the repository by default."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
# Ours, and the part of TF Serving's that the front speaks.
CONTRACTS = ("proto/rewriter/v1/rewriter.proto", "proto/rewriter/tf_serving/v1/tf_serving.proto")
GENERATED = ("rewriter_pb2.py", "rewriter_pb2.pyi", "rewriter_pb2_grpc.py", "tf_serving_pb2.py", "tf_serving_pb2.pyi")


def generate(destination: Path) -> None:
    """Writes the GENERATED files into ``destination/serving/pb``; raises CalledProcessError if the compiler refuses."""
    for contract in CONTRACTS:
        _compile(REPOSITORY / contract, destination)


def _compile(contract: Path, destination: Path) -> None:
    # In a process of its own: the compiler and TensorFlow crash each other. Mapping serving/pb onto the folder of the
    # contract makes the stubs import each other as serving.pb.
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"-Iserving/pb={contract.parent}",
        f"--python_out={destination}",
        f"--pyi_out={destination}",
        f"serving/pb/{contract.name}",
    ]
    if f"{contract.stem}_pb2_grpc.py" in GENERATED:
        command.insert(-1, f"--grpc_python_out={destination}")
    subprocess.run(command, check=True)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
