"""Servers that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drafters.engine.serving import Served, random_folder, song_folder


@pytest.fixture(scope="session")
def babble_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights."""
    return random_folder(tmp_path_factory.mktemp("babble"))


@pytest.fixture(scope="session")
def babble(babble_folder: Path) -> Iterator[Served]:
    """A server of the random model with three drafters, few places and much room."""
    config = {
        "model": str(babble_folder),
        "served_name": "babble",
        "dtype": "float64",
        "drafters": {
            "lookup": {"spec": {"method": "prompt_lookup", "num_tokens": 4, "min_ngram": 1}},
            "tree": {"spec": {"method": "eagle3", "num_tokens": 3, "tree_nodes": 5}},
            "table": {"spec": {"method": "ngram"}, "lengths": {"1": 2, "2": 0}},
        },
        "default_drafter": "lookup",
        "max_sequences": 4,
        "context_tokens": 2048,
        "prefill_tokens": 64,
    }
    with Served(config) as served:
        yield served


@pytest.fixture(scope="session")
def song(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of the model that sings."""
    config = {
        "model": str(song_folder(tmp_path_factory.mktemp("song"))),
        "served_name": "song",
        "drafters": {"lookup": {"spec": {"method": "prompt_lookup", "num_tokens": 4}}},
        "context_tokens": 256,
    }
    with Served(config) as served:
        yield served
