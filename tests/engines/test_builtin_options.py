"""The check of arms and engine options for the builtin engine: every fault with file and line, before anything is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from drafters.engine.config import ServedDrafter
from drafters.specs import NgramSpec, PromptLookupSpec
from harness.engines.builtin_options import check_arms, differences, engine_config, served, shipped_by_name
from harness.errors import WorkloadError
from harness.models import drafter_path
from harness.workload import Arm, EngineSpec, LoadedWorkload, load

TASKS = Path(__file__).parents[2] / "workloads" / "data" / "essay-ko.jsonl"


def workload(folder: Path, arms: str, engine: str = "{kind: builtin}") -> LoadedWorkload:
    """Load a workload whose arms start on line 5."""
    path = folder / "w.yaml"
    path.write_text(f"name: w\ntasks: {TASKS}\nengine: {engine}\narms:\n{arms}concurrency: [1]\n", encoding="utf-8")
    return load(path)


def complaints(folder: Path, arms: str, engine: str = "{kind: builtin}") -> str:
    """Return the message of the error, with the folder cut out."""
    with pytest.raises(WorkloadError) as caught:
        check_arms(workload(folder, arms, engine))
    return str(caught.value).replace(f"{folder}/", "")


def test_good_arms_pass(tmp_path: Path) -> None:
    """Drafters with their options pass: numbers, tables, lists of lists, and every engine option."""
    options = (
        "{dtype: bfloat16, weights: nf4, device: cpu, prefix_reuse: false, prefill_tokens: 64, verification: block}"
    )
    check_arms(
        workload(
            tmp_path,
            "- {name: baseline, method: none}\n"
            "- {name: a, method: prompt_lookup, options: {num_tokens: 8, lengths: goodput}}\n"
            "- {name: b, method: ngram, engine: builtin, options: {lengths: {1: 8, 4: 2, 16: 0}}}\n"
            "- {name: c, method: medusa, options: {tree: [[0], [1], [0, 0]]}}\n"
            "- {name: d, method: synthetic, options: {acceptance: [0.8, 0.5]}}\n",
            f"{{kind: builtin, options: {options}}}",
        )
    )


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("{name: a, method: prompt_lokup}", "has no method 'prompt_lokup'; did you mean 'prompt_lookup'? known: none, "),
        ("{name: a, method: ngram-simple}", "an arm for another engine says so, as in engine: llamacpp"),
        ("{name: a, method: ngram, options: {ordr: 3}}", "ngram has no option 'ordr'; did you mean 'order'? it has num_tokens"),
        ("{name: a, method: none, options: {num_tokens: 3}}", "none has no options; it drafts nothing"),
        ("{name: a, method: ngram, options: {order: 1}}", "order is 1: input should be greater than or equal to 2"),
        ("{name: a, method: ngram, options: {order: 3, min_order: 4}}", "ngram: min_order 4 is above order 3"),
        ("{name: a, method: ngram, options: {lengths: godput}}", "lengths is 'godput'; did you mean 'goodput'? allowed: fixed, goodput"),
        ("{name: a, method: ngram, options: {lengths: {0: 3}}}", "lengths is {0: 3}; allowed: fixed, goodput, or a table"),
        ("{name: a, method: ngram, options: {lengths: {}}}", "lengths is {}; allowed: fixed, goodput, or a table"),
        ("{name: a, method: dflash, options: {block_size: 4, num_tokens: 7}}", "num_tokens is 7, but a block of 4 drafts at most 3"),
        ("{name: a, method: mtp, options: {model: /}}", "'/' holds no model: it needs config.json and *.safetensors"),
        ("{name: a, method: ngram, options: {corpus: /}}", "no file '/'"),
        ("{name: a, method: ngram, options: {method: mtp}}", "the method stands beside the options, not in them"),
        ("{name: a, method: draft_model}", "draft_model needs model; give it"),
        ("{name: a, method: draft_model, options: {model: nowhere}}", "no folder 'nowhere'"),
        ("{name: a, method: draft_model, draft_model: smollm2-135m}", "arms of the builtin engine take no draft_model"),
        ("{name: a, method: none, base_url: 'http://x:1'}", "give its address once, as engine.base_url"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line(tmp_path: Path, arm: str, said: str) -> None:
    """A wrong method, option, value or address is said with the line, what is allowed and what was meant."""
    message = complaints(tmp_path, f"- {arm}\n")
    assert message.startswith("w.yaml:5: ")
    assert said in message


def test_the_line_is_that_of_the_option(tmp_path: Path) -> None:
    """Each fault stands on its own line of the message with the line of its own key."""
    arms = "- name: a\n  method: ngram\n  options:\n    order: 0\n    x: 1\n- {name: b, method: what}\n"
    assert [line.split(": ")[0] for line in complaints(tmp_path, arms).splitlines()] == [
        "w.yaml:8",
        "w.yaml:9",
        "w.yaml:10",
    ]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("options: {dtyp: float32}", "no option 'dtyp'; did you mean 'dtype'? it has dtype, weights, device, prefix_reuse"),
        ("options: {dtype: float16}", "dtype is 'float16': input should be 'float32', 'bfloat16' or 'float64'"),
        ("options: {prefill_tokens: 0}", "prefill_tokens is 0: input should be greater than or equal to 1"),
        ("options: {port: 80}", "the builtin engine has no option 'port'"),
        ("model: smolm2-135m", "no model 'smolm2-135m'; did you mean 'smollm2-135m'?"),
        ("context_tokens: 2049\n  model: ref-koen", "context_tokens is 2049, but ref-koen reads at most 2048 tokens"),
        ("base_url: 'http://127.0.0.1:1/v1'", "give an address like http://127.0.0.1:8000, without /v1"),
    ],
)  # fmt: skip
def test_engine_options_are_checked(tmp_path: Path, engine: str, said: str) -> None:
    """A wrong setting of the engine is said with the line of its key."""
    message = complaints(tmp_path, "- {name: a, method: none}\n", f"\n  kind: builtin\n  {engine}")
    assert message.startswith("w.yaml:5: ")
    assert said in message


def test_model_files_of_the_other_engine(tmp_path: Path) -> None:
    """A GGUF file is told how to become a folder, a folder without a model what it lacks."""
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    said = complaints(tmp_path, "- {name: a, method: none}\n", f"{{kind: builtin, model: {tmp_path / 'm.gguf'}}}")
    assert "reads a Hugging Face folder" in said
    assert "python -m drafters.convert" in said
    said = complaints(tmp_path, "- {name: a, method: none}\n", f"{{kind: builtin, model: {tmp_path}}}")
    assert "it needs config.json" in said


def test_an_attached_servers_files_are_its_own_business(tmp_path: Path) -> None:
    """With an address neither the model nor the folder of a drafter has to be here; the address may be said twice."""
    arms = (
        "- {name: a, method: draft_model, options: {model: /there/only}}\n"
        "- {name: b, method: none, base_url: 'http://x:1'}\n"
    )
    check_arms(workload(tmp_path, arms, "{kind: builtin, model: theirs, base_url: 'http://x:1'}"))


def test_one_server_carries_all_arms(tmp_path: Path) -> None:
    """The configuration has a drafter an arm under the arm's name, none for the baseline, and room for the whole load."""
    arms = [
        Arm(name="baseline", method="none"),
        Arm(name="copy", method="prompt_lookup", options={"num_tokens": 8, "lengths": "goodput"}),
        Arm(name="count", method="ngram", options={"lengths": {1: 4, 8: 0}}),
    ]
    spec = EngineSpec(
        kind="builtin", context_tokens=512, threads=2, options={"dtype": "bfloat16", "prefix_reuse": False}
    )
    config = engine_config(spec, arms, tmp_path, concurrency=4, served_name="m")
    assert config.drafters == {
        "copy": ServedDrafter(spec=PromptLookupSpec(num_tokens=8), lengths="goodput"),
        "count": ServedDrafter(spec=NgramSpec(), lengths={1: 4, 8: 0}),
    }
    assert (config.max_sequences, config.context_tokens, config.threads) == (4, 512, 2)
    assert (config.dtype, config.prefix_reuse, config.default_drafter) == ("bfloat16", False, None)


def test_a_drafters_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is one from where the run is started, and reaches the server in full."""
    monkeypatch.chdir(tmp_path)
    arm = Arm(name="a", method="draft_model", options={"model": "small"})
    config = engine_config(EngineSpec(kind="builtin"), [arm], tmp_path, concurrency=1, served_name="m")
    assert config.model_dump(mode="json")["drafters"]["a"]["spec"]["model"] == str(tmp_path / "small")


def test_differences_between_an_arm_and_a_server() -> None:
    """Another method, another value or another choice of lengths is named; the same drafter gives nothing."""
    wanted = served("ngram", {"order": 3, "lengths": {1: 4}})
    assert differences(wanted, wanted.model_dump(mode="json")) == []
    other = served("ngram", {"order": 5}).model_dump(mode="json")
    assert differences(wanted, other) == ["order 5 instead of 3", "lengths 'fixed' instead of {'1': 4}"]
    copy = served("prompt_lookup", {}).model_dump(mode="json")
    assert differences(wanted, copy) == ["method prompt_lookup instead of ngram"]
    assert differences(wanted, {"spec": 1}) == ["the server describes it as {'spec': 1}"]


def test_checking_needs_no_torch() -> None:
    """Everything up to the start of a server is done without loading torch, which would take seconds."""
    code = "import sys, harness.cli, harness.prepare, harness.engines.builtin_serve; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_drafters_of_the_package_go_by_short_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ref:`` in an option that names a file leads into the package; a wrong name is told with its line."""
    for name in ("ref-koen", "public-dflash2"):
        (tmp_path / "ref" / name).mkdir(parents=True)
        (tmp_path / "ref" / name / "config.json").write_text("{}")
        (tmp_path / "ref" / name / "model.safetensors").write_bytes(b"")
    (tmp_path / "ref" / "ngram").mkdir()
    (tmp_path / "ref" / "ngram" / "corpus.txt").write_text("1 2\n")
    monkeypatch.setenv("SPEC_HARNESS_REFERENCE", str(tmp_path / "ref"))
    arms = (
        "- {name: a, method: dflash2, options: {model: 'ref:public-dflash2'}}\n"
        "- {name: b, method: ngram, options: {corpus: 'ref:ngram'}}\n"
    )
    loaded = workload(tmp_path, arms, "{kind: builtin, model: ref-koen}")
    check_arms(loaded)
    made = engine_config(
        loaded.workload.engine, loaded.workload.arms, tmp_path, concurrency=1, served_name="m"
    ).drafters
    assert made["a"].model_dump()["spec"]["model"] == tmp_path / "ref" / "public-dflash2"
    assert made["b"].model_dump()["spec"]["corpus"] == tmp_path / "ref" / "ngram" / "corpus.txt"
    wrong = "- {name: a, method: dflash2, options: {model: 'ref:public-dflsh2'}}\n"
    said = complaints(tmp_path, wrong, "{kind: builtin, model: ref-koen}")
    assert said.startswith("w.yaml:5: no drafter ref:public-dflsh2")
    assert "did you mean ref:public-dflash2?" in said


def test_a_shipped_drafter_is_told_by_its_name() -> None:
    """A server tells paths; what came with the package keeps its name, and somebody's own file its path."""
    shipped = {"method": "dflash2", "model": str(drafter_path("ref:public-dflash2")), "num_tokens": 7}
    table = {"method": "ngram", "corpus": str(drafter_path("ref:ngram"))}
    own = {"method": "mtp", "model": "/models/own-mtp"}
    assert shipped_by_name(shipped) == {**shipped, "model": "ref:public-dflash2"}
    assert shipped_by_name(table) == {**table, "corpus": "ref:ngram"}
    assert shipped_by_name(own) == own
    assert shipped_by_name(None) is None
