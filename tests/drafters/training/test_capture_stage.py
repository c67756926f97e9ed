"""``drafters capture`` and the reader of what it writes."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from drafters.base import Commit, Draft, DraftRequest
from drafters.engine.runner import Runner
from drafters.engine.sequence import Request
from drafters.engine.target import DecoderModel, TargetError
from drafters.training.examples import Example
from drafters.training.features import FeatureStore, Place, plan_shards
from drafters.training.frozen import FrozenTarget
from drafters.training.stage import StageError, begin, finish, read_manifest, write_whole
from tests.drafters.training.regenerating import capture, examples_of

VOCAB, HIDDEN, LAYERS = 300, 256, 3
SIZES = (40, 7, 120, 64, 3)
ROUNDING = 2.0**-8
"""Of bf16: half a unit in its last place, relative."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of random weights, three layers."""
    folder = tmp_path_factory.mktemp("target")
    torch.manual_seed(3)
    config: Any = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    model: Any = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Path:
    """Five examples of random tokens."""
    return written(tmp_path_factory.mktemp("examples") / "out", target, SIZES)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, target: Path, examples: Path) -> Path:
    """Their hidden states of layers 1 and 3, two hundred tokens a file: two files."""
    folder = tmp_path_factory.mktemp("store") / "out"
    capture("--examples", examples, "--target", target, "--layers", "1", "--shard-mib", 0.2, "--out", folder)
    return folder


def written(folder: Path, target: Path, sizes: Sequence[int]) -> Path:
    """A finished folder of examples."""
    generator = torch.Generator().manual_seed(5)
    lines = []
    for number, size in enumerate(sizes):
        tokens = tuple(torch.randint(0, VOCAB, (size,), generator=generator).tolist())
        lines.append(Example(f"e{number}", "ko", "office", "train", tokens, ((1, size),)).to_json() + "\n")
    begin(folder, "regenerate", {"target": target}, {})
    write_whole(folder / "examples.jsonl", "".join(lines))
    finish(folder, ["examples.jsonl"], {})
    return folder


def as_run(target: FrozenTarget, token_ids: Sequence[int], layers: Sequence[int]) -> Tensor:
    """The hidden states of one sequence alone, rounded to bf16."""
    return target.hidden_states(torch.tensor([list(token_ids)]), [len(token_ids)], layers)[0].to(torch.bfloat16)


def test_what_is_stored_is_what_the_target_computes(store: Path, target: Path, examples: Path) -> None:
    """Each example alone against its batch, within the rounding of bf16; the last layer was added by itself."""
    found, frozen = FeatureStore(store), FrozenTarget.load(target)
    assert found.manifest.counts["shards"] == 2
    assert (found.layers, len(found), "e3" in found, "e9" in found) == ((1, LAYERS), 5, True, False)
    found.check(frozen.fingerprint(), [LAYERS, 1])
    for name, example in examples_of(examples).items():
        states = found.read(name, example.token_ids, [LAYERS, 1])
        expected = as_run(frozen, example.token_ids, [LAYERS, 1])
        assert states.dtype == torch.bfloat16
        torch.testing.assert_close(states.float(), expected.float(), rtol=2 * ROUNDING, atol=1e-5)


def test_one_example_a_batch_is_stored_to_the_bit(tmp_path: Path, target: Path) -> None:
    """Without neighbours and padding nothing but the rounding to bf16 lies between."""
    source = written(tmp_path / "one", target, [33])
    capture("--examples", source, "--target", target, "--layers", "0,2", "--out", tmp_path / "out")
    example = examples_of(source)["e0"]
    states = FeatureStore(tmp_path / "out").read("e0", example.token_ids, [0, 2, LAYERS])
    assert torch.equal(states, as_run(FrozenTarget.load(target), example.token_ids, [0, 2, LAYERS]))


class Listener:
    """A drafter that drafts nothing and keeps the features it is told."""

    feature_layers = (1, LAYERS)
    max_nodes = 1
    tree = False

    def __init__(self) -> None:
        self.heard: list[Tensor] = []

    def open(self, sequence_id: int, max_length: int) -> None:
        """Take note of nothing."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Nothing."""
        return [Draft(()) for _ in requests]

    def commit(self, commits: Sequence[Commit]) -> None:
        """Keep a copy."""
        self.heard += [commit.features.clone() for commit in commits if commit.features is not None]

    def release(self, sequence_id: int) -> None:
        """Forget nothing."""


@pytest.mark.parametrize("weights", ["plain", "nf4"])
def test_drafters_are_told_the_same_states_in_the_engine(tmp_path: Path, target: Path, weights: Any) -> None:
    """The engine's own forward, a prompt in chunks of sixteen, plain and in 4 bits, against the store."""
    source = written(tmp_path / "examples", target, [100])
    out, example = tmp_path / "out", examples_of(source)["e0"]
    capture("--examples", source, "--target", target, "--layers", "1", "--weights", weights, "--out", out)
    stored = FeatureStore(out).read("e0", example.token_ids, Listener.feature_layers)
    listener = Listener()
    model = DecoderModel.load(target, weights=weights)
    runner = Runner(model, 128, {"listener": listener}, prefill_tokens=16)
    runner.add(Request(example.token_ids, 2, drafter="listener"))
    while runner.busy:
        runner.step()
    heard = torch.cat(listener.heard)[:100]
    assert heard.shape == (100, 2, HIDDEN)
    torch.testing.assert_close(stored.float(), heard.float(), rtol=2 * ROUNDING, atol=1e-4)


def test_the_size_is_said_before_and_above_the_limit_asked_for(tmp_path: Path, target: Path, examples: Path) -> None:
    """234 tokens, two layers of 256 numbers of two bytes and an id of four: 1,028 bytes a token, 0.2 MiB in one file."""
    arguments = ["--examples", examples, "--target", target, "--layers", "1,3", "--out", tmp_path / "out"]
    with pytest.raises(StageError, match=r"0\.2 MiB, more than --limit-gib 0\.0001; give --yes"):
        capture(*arguments, "--limit-gib", 0.0001)
    assert not (tmp_path / "out").exists()
    said = capture(*arguments, "--limit-gib", 0.0001, "--yes")
    assert said[0] == "234 tokens x 2 layers x 256 in bf16 = 0.2 MiB (1,028 bytes a token, 1 files)"
    assert capture(*arguments)[-1].endswith("is done: 234 tokens of 5 examples")


def test_a_disk_without_room_is_told_before_the_start(
    tmp_path: Path, target: Path, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk with a hundred kilobytes free."""
    free = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: free)
    with pytest.raises(StageError, match=r"the disk of .* has 0\.1 MiB free"):
        capture("--examples", examples, "--target", target, "--layers", "1", "--out", tmp_path / "out", "--yes")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_up_leaves_no_half_shard_and_the_stage_goes_on(
    tmp_path: Path, target: Path, store: Path, examples: Path
) -> None:
    """A quota that holds no shard; then one shard is there, the other cut short: only that one is computed again."""
    out = tmp_path / "out"
    arguments = ["--examples", examples, "--target", target, "--layers", "1", "--shard-mib", 0.2, "--out", out]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StageError, match=r"shard-00000\.safetensors cannot be written: File too large"):
            capture(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in out.iterdir()) == [".lock", "request.json"]
    with pytest.raises(StageError, match="not finished"):
        FeatureStore(out)
    shutil.copy(store / "shard-00000.safetensors", out)
    (out / "shard-00000.safetensors").touch()
    kept = (out / "shard-00000.safetensors").stat()
    capture(*arguments)
    assert (out / "shard-00000.safetensors").stat().st_mtime_ns == kept.st_mtime_ns
    assert read_manifest(out, "capture").outputs == read_manifest(store, "capture").outputs


@pytest.mark.parametrize("damage", ["short", "other"])
def test_a_shard_that_is_not_whole_is_computed_again(
    tmp_path: Path, target: Path, store: Path, examples: Path, damage: str
) -> None:
    """Cut short by whoever copied it, or of other examples."""
    out = tmp_path / "out"
    other = written(tmp_path / "other", target, [9])
    arguments = ["--examples", examples, "--target", target, "--layers", "1", "--shard-mib", 0.2, "--out", out]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(StageError):
            capture(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    shard = out / "shard-00000.safetensors"
    if damage == "short":
        shard.write_bytes((store / shard.name).read_bytes()[:-100])
    else:
        capture("--examples", other, "--target", target, "--layers", "1", "--out", tmp_path / "second")
        shutil.copy(tmp_path / "second" / shard.name, shard)
    capture(*arguments)
    assert shard.read_bytes() == (store / shard.name).read_bytes()


def test_a_store_cut_short_is_refused_with_the_name_of_the_file(tmp_path: Path, store: Path) -> None:
    """As happens when it is moved to another disk; a lost file as well."""
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    shard = copy / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(StageError, match=r"shard-00000\.safetensors was changed or cut short"):
        FeatureStore(copy)
    shard.unlink()
    with pytest.raises(StageError, match=r"shard-00000\.safetensors is missing"):
        FeatureStore(copy)


def test_a_shard_that_shrinks_while_it_is_used_is_named(tmp_path: Path, store: Path, examples: Path) -> None:
    """Opened when it was whole, read when it is not."""
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    found = FeatureStore(copy)
    (copy / "shard-00000.safetensors").write_bytes(b"short")
    with pytest.raises(StageError, match=r"shard-00000\.safetensors is damaged"):
        found.read("e0", examples_of(examples)["e0"].token_ids, [1])


def test_the_reader_refuses_other_targets_layers_examples_and_tokens(store: Path, target: Path, examples: Path) -> None:
    """Each with what there is and what to do."""
    found, fingerprint = FeatureStore(store), FrozenTarget.load(target).fingerprint()
    with pytest.raises(StageError, match="captured from another target"):
        found.check(FrozenTarget.load(target, "rtn4").fingerprint(), [1])
    with pytest.raises(StageError, match=r"lacks the hidden states of layers 2; it has 1, 3.* --layers 1,2,3"):
        found.check(fingerprint, [2, 3])
    with pytest.raises(StageError, match="has no example 'e9'"):
        found.read("e9", [1], [1])
    tokens = list(examples_of(examples)["e0"].token_ids)
    with pytest.raises(StageError, match="40 other tokens for example 'e0'"):
        found.read("e0", [*tokens[:-1], (tokens[-1] + 1) % VOCAB], [1])


def test_states_that_are_not_finite_are_refused_when_written(tmp_path: Path, target: Path) -> None:
    """A target with a broken weight."""
    folder = tmp_path / "broken"
    shutil.copytree(target, folder)
    loader: Any = Qwen3ForCausalLM
    model = loader.from_pretrained(folder)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("inf")
    model.save_pretrained(folder)
    source = written(tmp_path / "examples", folder, [5])
    with pytest.raises(StageError, match="'e0' are not finite"):
        capture("--examples", source, "--target", folder, "--layers", "1", "--out", tmp_path / "out")


def test_states_that_are_not_finite_are_refused_when_read(tmp_path: Path, store: Path, examples: Path) -> None:
    """Written so by another program, with hashes that fit."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "copy"
    begin(folder, "capture", {"examples": examples}, {})
    for file in store.glob("*.safetensors"):
        tensors = load_file(file)
        tensors["features"][2, 0, 0] = float("nan")
        save_file(tensors, folder / file.name)
    shutil.copy(store / "index.json", folder)
    counts = read_manifest(store, "capture").counts
    finish(folder, ["index.json", *(file.name for file in store.glob("*.safetensors"))], counts)
    with pytest.raises(StageError, match="'e0' has hidden states that are not finite"):
        FeatureStore(folder).read("e0", examples_of(examples)["e0"].token_ids, [1])


def test_examples_longer_than_the_target_reads_are_named(tmp_path: Path, target: Path) -> None:
    """129 tokens for a target of 128."""
    source = written(tmp_path / "examples", target, [129])
    with pytest.raises(StageError, match="'e0' has 129 tokens, the target reads 128"):
        capture("--examples", source, "--target", target, "--layers", "1", "--out", tmp_path / "out")


@pytest.mark.parametrize("layers", ["", "4", "-1", "one", "1,,x"])
def test_layers_that_are_none_are_refused(tmp_path: Path, target: Path, examples: Path, layers: str) -> None:
    """Allowed are numbers from 0 to 3."""
    with pytest.raises(StageError, match="allowed: numbers from 0 to 3, such as 2,4,3"):
        capture("--examples", examples, "--target", target, f"--layers={layers}", "--out", tmp_path / "out")


def test_examples_of_another_target_are_refused(tmp_path: Path, target: Path, examples: Path) -> None:
    """Their answers are not what this one would write."""
    folder = tmp_path / "other"
    shutil.copytree(target, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 3}))
    with pytest.raises(StageError, match="written by another target"):
        capture("--examples", examples, "--target", folder, "--layers", "1", "--out", tmp_path / "out")
    with pytest.raises(StageError, match=r"holds no config\.json"):
        capture("--examples", examples, "--target", tmp_path, "--layers", "1", "--out", tmp_path / "out")


def test_a_layer_that_is_named_twice_is_stored_once(tmp_path: Path, target: Path, examples: Path) -> None:
    """Layer 1, and the last one, which always is."""
    capture("--examples", examples, "--target", target, "--layers", "1,1", "--out", tmp_path / "out")
    assert read_manifest(tmp_path / "out", "capture").counts["layers"] == [1, 3]


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(
    tmp_path: Path, target: Path, examples: Path
) -> None:
    """With what there is."""
    words = ("--layers", "1", "--device", "cuda:77", "--out", tmp_path / "out")
    with pytest.raises(TargetError, match=r"device 'cuda:77' cannot be used .*; there is cpu"):
        capture("--examples", examples, "--target", target, *words)
    assert not (tmp_path / "out").exists()


def test_examples_fill_shards_in_their_order() -> None:
    """Ten rows a shard: 4 + 5 fit, 3 do not; one of twelve gets a shard of its own."""
    assert plan_shards([("a", 4), ("b", 5), ("c", 3), ("d", 12), ("e", 1)], 10) == {
        "a": Place(0, 0, 4),
        "b": Place(0, 4, 9),
        "c": Place(1, 0, 3),
        "d": Place(2, 0, 12),
        "e": Place(3, 0, 1),
    }
