"""Another version of an exported model, for what happens when one comes. Loads no TensorFlow."""

import json
import shutil
from pathlib import Path


def copy_version(source: Path, destination: Path) -> None:
    """The same model under the number that ``destination`` is called by. Not at once: rename it to where it is seen."""
    shutil.copytree(source, destination)
    manifest = destination / "assets.extra/rewriter/model.json"
    found = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**found, "version": destination.name}), encoding="utf-8")
