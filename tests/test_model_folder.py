import json
from pathlib import Path

import numpy as np
import pytest
import tiny

from rewriter.artefact import load_features, load_model, load_weights, preprocessing_fingerprint, save_artefact
from rewriter.config import FeaturesConfig
from rewriter.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "new" / "zh"
    save_artefact(directory, tiny.model(), tiny.FEATURES, tiny.VOCABULARY)
    return directory


def _stored(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "weights.npz") as stored:
        return {name: stored[name] for name in stored.files}


def test_a_model_comes_back_from_its_folder_in_half_precision(folder: Path) -> None:
    saved, loaded = tiny.model(), load_model(folder)
    assert loaded.config == saved.config
    for before, after in zip(saved.trainable_variables, loaded.trainable_variables, strict=True):
        halved = np.array(before.value).astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(np.array(after.value), halved)
    arrays, positions = tiny.arrays(), tiny.targets()
    expected, found = (np.array(m.decode(m.encode(arrays), positions)) for m in (saved, loaded))
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=0.01)


def test_the_folder_holds_all_that_makes_arrays_and_no_more_than_halves(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "characters.txt",
        "config.json",
        "features.json",
        "weights.npz",
        "words.txt",
    ]
    assert load_features(folder) == (tiny.FEATURES, tiny.VOCABULARY)
    stored = _stored(folder)
    assert {array.dtype for array in stored.values()} == {np.dtype(np.float16)}
    # Keras numbers the models of a process; a name with such a number would not be found again.
    assert "pointer/history_gate/bias" in stored and not any("rewriter_model" in name for name in stored)


def test_loading_twice_in_a_process_gives_the_same_names(folder: Path) -> None:
    load_model(folder)
    np.testing.assert_array_equal(
        np.array(load_model(folder).word_embedding.embeddings.value),
        np.array(load_model(folder).word_embedding.embeddings.value),
    )


def test_a_missing_weight_is_named(folder: Path, tmp_path: Path) -> None:
    stored = _stored(folder)
    del stored["pointer/bonuses/kernel"]
    np.savez(tmp_path / "weights.npz", **stored)
    with pytest.raises(
        ValueError, match=r"weights\.npz: expected pointer/bonuses/kernel of shape \(16, 3\), found none"
    ):
        load_weights(tmp_path / "weights.npz", tiny.model())


def test_a_weight_of_another_shape_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"expected word_embedding/embeddings of shape \(99, 16\), found \(30, 16\)"):
        load_weights(folder / "weights.npz", tiny.model(num_words=99))


def test_a_folder_that_holds_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path}: expected a model .*config.json.*found none"):
        load_model(tmp_path)


def test_a_setting_that_nobody_knows_is_named(folder: Path, tmp_path: Path) -> None:
    described = json.loads((folder / "features.json").read_text(encoding="utf-8")) | {"granularty": "word"}
    (tmp_path / "features.json").write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(ValueError, match="granularty"):
        FeaturesConfig.load(tmp_path / "features.json")


def test_the_fingerprint_changes_with_whatever_makes_other_arrays() -> None:
    changed_words = Vocabulary((*tiny.VOCABULARY.words, "晚安"), tiny.VOCABULARY.characters)
    found = {
        preprocessing_fingerprint(tiny.FEATURES, tiny.VOCABULARY),
        preprocessing_fingerprint(tiny.FEATURES, changed_words),
        preprocessing_fingerprint(tiny.FEATURES.model_copy(update={"function_words": ("的",)}), tiny.VOCABULARY),
        preprocessing_fingerprint(tiny.FEATURES.model_copy(update={"max_history_turns": 5}), tiny.VOCABULARY),
    }
    assert len(found) == 4
    assert all(0 <= fingerprint < 2**63 for fingerprint in found)
    assert preprocessing_fingerprint(tiny.FEATURES, tiny.VOCABULARY) in found
