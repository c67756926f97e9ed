"""The check of a workload's arms: every fault with file and line, before anything is started."""

from pathlib import Path

import pytest

from harness.engines.llamacpp_options import check_arms, engine_config, longest_draft, settings
from harness.errors import WorkloadError
from harness.workload import Arm, LoadedWorkload, load

TASKS = Path(__file__).parents[2] / "workloads" / "data" / "essay-ko.jsonl"


def workload(folder: Path, arms: str, engine: str = "{}") -> LoadedWorkload:
    """Load a workload whose arms start on line 5."""
    path = folder / "w.yaml"
    path.write_text(f"name: w\ntasks: {TASKS}\nengine: {engine}\narms:\n{arms}concurrency: [1]\n", encoding="utf-8")
    return load(path)


def complaints(folder: Path, arms: str, engine: str = "{}") -> str:
    """Return the message of the error, with the folder cut out."""
    with pytest.raises(WorkloadError) as caught:
        check_arms(workload(folder, arms, engine))
    return str(caught.value).replace(f"{folder}/", "")


def test_good_arms_pass(tmp_path: Path) -> None:
    """Every method with good options passes."""
    check_arms(
        workload(
            tmp_path,
            "- {name: baseline, method: none}\n"
            "- {name: a, method: ngram-simple, options: {size_n: 2, size_m: 4}}\n"
            "- {name: b, method: ngram-mod}\n"
            "- {name: c, method: draft-simple, draft_model: smollm2-135m, options: {p_min: 0.5, sampling: probabilistic}}\n"
            "- {name: d, method: synthetic, options: {synth_len: 3}}\n"
            "- {name: e, method: synthetic, options: {synth_rates: [0.9, 0.5], draft_tokens: 2}}\n",
        )
    )


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("{name: a, method: ngram-map}", "w.yaml:5: unknown method 'ngram-map'; did you mean 'ngram-map-k'? known: none, "),
        ("{name: a, method: ngram-mod, options: {n_mach: 3}}", "has no option 'n_mach'; did you mean 'n_match'? it has n_match"),
        ("{name: a, method: none, options: {size_n: 3}}", "none has no option 'size_n'; it has none"),
        ("{name: a, method: ngram-simple, options: {size_n: 2.5}}", "size_n is 2.5; allowed: a whole number from 1 to 64"),
        ("{name: a, method: ngram-simple, options: {size_n: true}}", "size_n is True; allowed: a whole number"),
        ("{name: a, method: ngram-simple, options: {size_m: 0}}", "size_m is 0; allowed: a whole number from 1 to 256"),
        ("{name: a, method: ngram-mod, options: {n_min: 9}}", "n_min is 9 but n_max 8"),
        ("{name: a, method: draft-simple}", "draft-simple needs draft_model"),
        ("{name: a, method: draft-simple, draft_model: smolm2-135m}", "did you mean 'smollm2-135m'?"),
        ("{name: a, method: draft-simple, draft_model: smollm2-135m, options: {p_min: 2}}", "p_min is 2; allowed: a number from 0 to 1"),
        ("{name: a, method: draft-simple, draft_model: smollm2-135m, options: {sampling: x}}", "allowed: greedy, probabilistic"),
        ("{name: a, method: ngram-mod, draft_model: smollm2-135m}", "ngram-mod takes no draft_model"),
        ("{name: a, method: synthetic}", "synthetic needs either synth_len"),
        ("{name: a, method: synthetic, options: {synth_len: 6}}", "synth_len is 6, but 4 drafted tokens give at most 5"),
        ("{name: a, method: synthetic, options: {synth_rates: [0.5, 0.6]}}", "falling numbers from 0 to 1"),
        ("{name: a, method: synthetic, options: {synth_rates: [0.5]}}", "synth_rates has 1 rates for 4 drafted tokens"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line(tmp_path: Path, arm: str, said: str) -> None:
    """A wrong method, option, value or draft model is said with the line, what is allowed and what was meant."""
    message = complaints(tmp_path, f"- {arm}\n")
    assert message.startswith("w.yaml:5: ")
    assert said in message


def test_the_line_is_that_of_the_option(tmp_path: Path) -> None:
    """Each fault stands on its own line of the message with the line of its own key."""
    arms = "- name: a\n  method: ngram-simple\n  options:\n    size_n: 0\n    size_x: 1\n- {name: b, method: what}\n"
    assert [line.split(": ")[0] for line in complaints(tmp_path, arms).splitlines()] == [
        "w.yaml:8",
        "w.yaml:9",
        "w.yaml:10",
    ]


@pytest.mark.parametrize(
    ("arms", "engine", "said"),
    [
        (
            "- {name: a, method: none, base_url: 'http://x:1'}\n- {name: b, method: ngram-mod}\n",
            "{}",
            "arm 'b' has no base_url",
        ),
        (
            "- {name: a, method: none}\n- {name: b, method: ngram-mod}\n",
            "{base_url: 'http://x:1'}",
            "has the address of arm 'a'",
        ),
        ("- {name: a, method: none, base_url: 'x:1'}\n", "{}", "base_url is 'x:1'; give an address like"),
    ],
)
def test_attached_arms_need_an_address_each(tmp_path: Path, arms: str, engine: str, said: str) -> None:
    """Attached arms without, with a bad or with a shared address are refused."""
    assert said in complaints(tmp_path, arms, engine)


def test_engine_options_and_folders_are_for_the_other_engine(tmp_path: Path) -> None:
    """Options of the engine are told with their line, a folder as a model with what reads it."""
    said = complaints(tmp_path, "- {name: a, method: none}\n", "\n  model: smollm2-135m\n  options: {dtype: float32}")
    assert said == "w.yaml:5: llamacpp has no engine option 'dtype'; it has attention"
    said = complaints(tmp_path, "- {name: a, method: none}\n", f"{{model: {tmp_path}}}")
    assert "is a folder; llama.cpp reads one GGUF file" in said


@pytest.mark.parametrize("place", ["engine", "arm"])
def test_how_attached_servers_attend_is_their_own_business(tmp_path: Path, place: str) -> None:
    """An attention that this package could not set is refused; the engine's own needs no setting."""
    at = "base_url: 'http://x:1'"
    arm = "- {name: a, method: none" + (f", {at}}}\n" if place == "arm" else "}\n")
    engine = "\n  options: {attention: WAY}" + (f"\n  {at}" if place == "engine" else "")
    said = complaints(tmp_path, arm, engine.replace("WAY", "float32"))
    assert said.startswith(
        "w.yaml:4: attention is 'float32', but servers that are attached were started with their own"
    )
    check_arms(workload(tmp_path, arm, engine.replace("WAY", "engine")))


def test_an_attached_draft_model_is_the_servers_business(tmp_path: Path) -> None:
    """An attached draft-simple arm needs no draft_model here."""
    check_arms(workload(tmp_path, "- {name: a, method: draft-simple, base_url: 'http://x:1'}\n"))


def test_defaults_draft_on_short_prompts() -> None:
    """Without options an n-gram arm looks up 3 tokens and drafts up to 8."""
    arm = Arm(name="a", method="ngram-map-k")
    assert settings(arm) == {"size_n": 3, "size_m": 8, "min_hits": 1}
    assert longest_draft(arm) == 8
    assert engine_config(arm)["settings"]["ngram_map_k.size_m"] == 8


def test_synthetic_stands_on_a_real_drafter() -> None:
    """A synthetic arm drafts by n-grams of one token, or with the draft model where one is given."""
    plain = engine_config(Arm(name="a", method="synthetic", options={"synth_len": 3.0}))
    assert plain == {
        "type": "ngram-simple",
        "settings": {"synth_len": 3.0, "ngram_simple.size_n": 1, "ngram_simple.size_m": 4},
    }
    modelled = engine_config(Arm(name="a", method="synthetic", options={"synth_len": 3.0}, draft_model="m"))
    assert modelled == {"type": "draft-simple", "settings": {"synth_len": 3.0, "draft.n_max": 4}}
