"""Which modules may load what: checked in fresh processes, since one import anywhere would hide another."""

import os
import subprocess
import sys

import pytest


def loaded(*modules: str, **environment: str) -> set[str]:
    """The top-level packages that are there once these modules are imported."""
    code = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    finished = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return set(finished.stdout.split())


@pytest.mark.parametrize(
    "module", ["conversation", "config", "features", "corpus", "checking", "dataset", "preparation"]
)
def test_the_text_side_loads_no_model_library(module: str) -> None:
    packages = loaded(f"rewriter.{module}")
    assert "rewriter" in packages
    assert not packages & {"keras", "tensorflow", "jax", "torch"}


def test_conversations_need_nothing_that_is_not_in_python() -> None:
    """They are what the light client loads of this package."""
    assert not loaded("rewriter.conversation") & {"numpy", "pydantic", "jieba", "grpc"}


def test_reading_a_corpus_needs_nothing_but_what_checks_its_records() -> None:
    packages = loaded("rewriter.corpus")
    assert "pydantic" in packages
    assert not packages & {"numpy", "jieba", "grpc"}


@pytest.mark.parametrize("module", ["dataset", "features", "config", "tokenizer"])
def test_the_dictionary_is_loaded_by_the_first_tokenizer_not_by_an_import(module: str) -> None:
    assert "jieba" not in loaded(f"rewriter.{module}")


def test_a_model_on_jax_needs_neither_tensorflow_nor_the_dictionary() -> None:
    pytest.importorskip("jax")
    packages = loaded("rewriter.dataset", "rewriter.model", KERAS_BACKEND="jax")
    assert {"keras", "jax"} <= packages
    assert not packages & {"tensorflow", "jieba"}


def test_the_process_that_looks_after_workers_loads_neither_grpc_nor_tensorflow() -> None:
    packages = loaded("rewriter.cli", "serving.settings", "serving.processes.run")
    assert {"serving", "prometheus_client"} <= packages
    assert not packages & {"grpc", "tensorflow", "keras"}
