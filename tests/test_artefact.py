from pathlib import Path

import pytest

from serving.artefact import newest_version


def test_the_version_with_the_highest_number_is_the_newest(tmp_path: Path) -> None:
    for name in ("9", "10", "2", "latest", "11.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "99").write_text("a file is no version", encoding="utf-8")
    assert newest_version(tmp_path).name == "10"


def test_a_folder_without_versions_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path}: expected a numbered version folder, found none"):
        newest_version(tmp_path)
    with pytest.raises(ValueError, match="nowhere: expected a folder of model versions, found none"):
        newest_version(tmp_path / "nowhere")
