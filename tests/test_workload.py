"""Workload files: every complaint names file and line, what was given and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import UsageError, WorkloadError
from harness.overrides import Overrides, apply
from harness.prepare import experiment_of
from harness.workload import load
from tests.test_tasks import PREFIX, TASK

GOOD = """\
name: small
tasks: tasks.jsonl
engine:
  kind: llamacpp
  model: smollm2-135m
arms:
  - {name: baseline, method: none}
  - name: drafted
    method: ngram-map-k
    options: {size_n: 3}
concurrency: [1, 4]
repeats: 2
replay: {history: recorded}
sampling: {temperature: 0.0}
"""


def written(folder: Path, text: str) -> Path:
    """Write a workload file beside a file of one task."""
    (folder / "tasks.jsonl").write_text(json.dumps(PREFIX) + "\n" + json.dumps(TASK) + "\n", encoding="utf-8")
    path = folder / "w.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_good_file(tmp_path: Path) -> None:
    """A good file gives the workload, its tasks and the line of any key."""
    loaded = load(written(tmp_path, GOOD))
    assert loaded.workload.concurrency == [1, 4]
    assert loaded.workload.baseline is not None
    assert loaded.workload.baseline.name == "baseline"
    assert [task.id for task in loaded.tasks] == ["t1"]
    assert loaded.where("arms", 1, "method") == f"{tmp_path / 'w.yaml'}:9"
    assert loaded.where("arms", 1, "options", "size_m") == f"{tmp_path / 'w.yaml'}:10"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            "repeats: 2",
            "repeat: 2",
            12,
            "unknown key 'repeat'; did you mean 'repeats'? allowed: name, description, tasks",
        ),
        ("{history: recorded}", "{histroy: recorded}", 13, "unknown key 'replay.histroy'; did you mean 'history'?"),
        ("  model: smollm2-135m", "  model: 3", 5, "engine.model is 3: input should be a valid string"),
        ("repeats: 2", "repeats: two", 12, "repeats is 'two'"),
        ("repeats: 2", "repeats: 2\nrepeats: 3", 13, "key 'repeats' appears twice"),
        ("tasks: tasks.jsonl", "tasks: other.jsonl", 2, "task file 'other.jsonl' does not exist"),
        ("tasks: tasks.jsonl", "tasks: []", 2, "tasks is empty"),
        ("tasks: tasks.jsonl", "tasks: [{file: tasks.jsonl, take: 2}]", 2, "take is 2, but tasks.jsonl holds 1 tasks"),
        ("  - name: drafted", "  - name: baseline", 8, "arms has 'baseline' twice"),
        ("    method: ngram-map-k", "    method: none", 9, "a second arm with method none"),
        ("[1, 4]", "[0, 4]", 11, "concurrency.0 is 0: input should be greater than or equal to 1"),
        ("[1, 4]", "[4, 4]", 11, "concurrency has 4 twice"),
        ("[1, 4]", "[]", 11, "concurrency is []"),
        ("[1, 4]", "[1, 4", 12, "not YAML"),
        ("name: small\n", "", 1, "key 'name' is missing"),
        ("{temperature: 0.0}", "{temperature: -1}", 14, "sampling.temperature is -1"),
        (
            "    options: {size_n: 3}",
            "    options: {size_n: 2026-01-13}",
            10,
            "a date is no option; give numbers, texts",
        ),
        ("    options: {size_n: 3}", "    options: {size_n: .inf}", 10, "an option is a finite number"),
        (
            "  kind: llamacpp",
            "  kind: tgi",
            4,
            "engine.kind is 'tgi': input should be 'llamacpp', 'builtin', 'vllm', 'sglang', 'trtllm', 'lmdeploy' or 'openai'",
        ),
        (
            "    method: ngram-map-k",
            "    method: ngram-map-k\n    engine: bultin",
            10,
            "arms.1.engine is 'bultin': input should be",
        ),
        ("history: recorded", "history: invented", 13, "input should be 'recorded' or 'live'"),
    ],
)
def test_bad_files(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    """Each kind of mistake is told at its own line in words that say what to do."""
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"), [("", "not an empty file"), ("- a\n", "not list"), ("just text\n", "not str")]
)
def test_files_that_are_no_mapping(tmp_path: Path, content: str, words: str) -> None:
    """A file that is empty or holds no mapping is told which keys a workload has."""
    with pytest.raises(WorkloadError, match=words):
        load(written(tmp_path, content))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\x1bb\n", "w.yaml:1: a control character"),
        ("name: x\ndescription: 2026-13-01\n", "not YAML"),
        ("name: &a [*a]\n", "anchor"),
        ("name: x\nengine: {max_requests_per_s: .inf}\n", "finite"),
    ],
)
def test_yaml_that_breaks_readers(tmp_path: Path, text: str, words: str) -> None:
    """Control characters, dates that are none, endless anchors and infinities are told, not crashed on."""
    with pytest.raises(WorkloadError, match=words):
        load(written(tmp_path, text))


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    """Two mistakes give two lines, so that one run of the check is enough."""
    path = written(tmp_path, GOOD.replace("repeats: 2", "repeats: 0").replace("kind: llamacpp", "kind: llama"))
    with pytest.raises(WorkloadError) as caught:
        load(path)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [f"{path}:4", f"{path}:12"]


def test_arm_may_be_called_off(tmp_path: Path) -> None:
    """YAML 1.1 would read ``off`` as false; a workload keeps it as the word it is."""
    loaded = load(written(tmp_path, GOOD.replace("name: drafted", "name: off")))
    assert loaded.workload.arms[1].name == "off"


SHARED = """\
name: small
tasks: tasks.jsonl
engine: {options: {}}
arms:
  - {name: lookup, method: ngram-simple, engine: llamacpp}
  - {name: only-here, method: ngram-mod, engine: llamacpp}
  - {name: baseline, method: none}
  - {name: lookup, method: prompt_lookup, engine: builtin}
concurrency: [1]
"""


def test_arms_of_other_engines_are_dropped(tmp_path: Path) -> None:
    """A run has the arms of its engine and those of all engines, each with the line it has in the file."""
    loaded = load(written(tmp_path, SHARED))
    here, there = apply(loaded, Overrides()), apply(loaded, Overrides(engine="builtin"))
    assert [(arm.name, arm.method) for arm in here.workload.arms] == [
        ("lookup", "ngram-simple"), ("only-here", "ngram-mod"), ("baseline", "none"),
    ]  # fmt: skip
    assert [(arm.name, arm.method) for arm in there.workload.arms] == [
        ("baseline", "none"),
        ("lookup", "prompt_lookup"),
    ]
    assert [there.where("arms", index, "name") for index in (0, 1)] == [f"{loaded.path}:7", f"{loaded.path}:8"]


def test_an_arm_of_another_engine_cannot_be_asked_for(tmp_path: Path) -> None:
    """Asking for an arm that this engine does not have says which it has."""
    loaded = load(written(tmp_path, SHARED))
    with pytest.raises(
        UsageError,
        match=r"--arms: .*w.yaml:4: the arm 'only-here' exists only on the engine llamacpp, this run is on builtin; "
        r"arms of this run: baseline, lookup",
    ):
        apply(loaded, Overrides(engine="builtin", arms=("baseline", "only-here")))


def test_a_file_without_arms_for_an_engine(tmp_path: Path) -> None:
    """A file with nothing but a baseline for the engine is refused, unless the baseline alone was asked for."""
    loaded = load(written(tmp_path, SHARED.replace("  - {name: lookup, method: prompt_lookup, engine: builtin}\n", "")))
    with pytest.raises(
        UsageError, match="nothing to compare on the engine builtin: lookup exists only on the engine llamacpp"
    ):
        apply(loaded, Overrides(engine="builtin"))
    alone = apply(loaded, Overrides(engine="builtin", arms=("baseline",)))
    assert [arm.name for arm in alone.workload.arms] == ["baseline"]


def test_arms_with_shipped_drafters_exist_for_the_shipped_target_alone(tmp_path: Path) -> None:
    """A drafter that comes with the package fits one model: runs of another leave its arm out, and asking for it says why."""
    text = SHARED.replace("engine: {options: {}}", "engine: {kind: builtin, model: ref-koen, options: {}}")
    own = "  - {name: own, method: dflash2, engine: builtin, options: {model: 'ref:public-dflash2'}}\nconcurrency"
    loaded = load(written(tmp_path, text.replace("concurrency", own)))

    def names(overrides: Overrides) -> list[str]:
        return [arm.name for arm in apply(loaded, overrides).workload.arms]

    assert names(Overrides()) == ["baseline", "lookup", "own"]
    assert names(Overrides(model="smollm2-135m")) == ["baseline", "lookup"]
    assert names(Overrides(model="smollm2-135m", base_url="http://127.0.0.1:1")) == ["baseline", "lookup", "own"]
    with pytest.raises(UsageError, match="'own' exists only for the model ref-koen, this run has smollm2-135m"):
        apply(loaded, Overrides(model="smollm2-135m", arms=("baseline", "own")))


def test_the_context_can_be_another_one(tmp_path: Path) -> None:
    """``--context-tokens`` stands for the file's own; one that is too small is refused by the name of the option."""
    loaded = load(written(tmp_path, SHARED))
    assert apply(loaded, Overrides(context_tokens=5120)).workload.engine.context_tokens == 5120
    with pytest.raises(UsageError, match=r"^--context-tokens is 8: input should be greater than or equal to 256$"):
        apply(loaded, Overrides(context_tokens=8))


def test_names_and_baselines_are_counted_for_each_engine(tmp_path: Path) -> None:
    """One name may stand for an arm of each engine, but not twice on one; so may a baseline."""
    two = SHARED.replace("name: baseline, method: none", "name: baseline, method: none, engine: llamacpp")
    two = two.replace("concurrency", "  - {name: baseline, method: none, engine: builtin}\nconcurrency")
    assert len(load(written(tmp_path, two)).workload.arms) == 5
    with pytest.raises(WorkloadError, match=r"w.yaml:9: arms has 'lookup' twice"):
        load(written(tmp_path, SHARED.replace("concurrency", "  - {name: lookup, method: ngram}\nconcurrency")))
    with pytest.raises(WorkloadError, match=r"w.yaml:9: a second arm with method none"):
        load(
            written(
                tmp_path, SHARED.replace("concurrency", "  - {name: b, method: none, engine: builtin}\nconcurrency")
            )
        )


def test_another_engine_leaves_the_files_options_behind(tmp_path: Path) -> None:
    """Options of the engine belong to the kind that the file names."""
    loaded = load(
        written(
            tmp_path, SHARED.replace("engine: {options: {}}", "engine: {kind: builtin, options: {dtype: bfloat16}}")
        )
    )
    assert apply(loaded, Overrides(engine="builtin")).workload.engine.options == {"dtype": "bfloat16"}
    assert apply(loaded, Overrides(engine="llamacpp")).workload.engine.options == {}


@pytest.mark.parametrize(
    ("engine", "other", "said"),
    [
        ("{options: {dtype: bfloat16}}", "builtin", "llamacpp has no engine option 'dtype'"),
        ("{kind: builtin, options: {dtyp: float32}}", "llamacpp", "no option 'dtyp'; did you mean 'dtype'?"),
    ],
)
def test_options_that_another_engine_leaves_behind_are_checked(
    tmp_path: Path, engine: str, other: str, said: str
) -> None:
    """An unknown engine option of the file is told with its line also where the run is on another engine."""
    path = written(tmp_path, SHARED.replace("engine: {options: {}}", f"engine: {engine}"))
    with pytest.raises(WorkloadError, match=r"w\.yaml:\d+: ") as caught:
        experiment_of([path], Overrides(engine=other))
    assert said in str(caught.value)


def test_overrides_change_only_what_they_name(tmp_path: Path) -> None:
    """An override replaces its key and leaves the rest of the file."""
    loaded = load(written(tmp_path, GOOD))
    workload = apply(loaded, Overrides(concurrency=(2,), arms=("drafted", "baseline"), limit_tasks=1)).workload
    assert workload.concurrency == [2]
    assert [arm.name for arm in workload.arms] == ["drafted", "baseline"]
    assert workload.tasks_per_cell == 1
    assert workload.repeats == 2


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (Overrides(concurrency=(0,)), "--concurrency is 0: input should be greater than or equal to 1"),
        (Overrides(concurrency=(4, 4)), "--concurrency 4,4 names a value twice"),
        (Overrides(arms=("drafte",)), "no arm 'drafte'; did you mean 'drafted'? its arms: baseline, drafted"),
        (Overrides(engine="vlm"), "--engine is 'vlm': input should be 'llamacpp'"),
        (Overrides(limit_tasks=0), "--limit-tasks is 0"),
        (Overrides(repeats=-1), "--repeats is -1"),
    ],
)
def test_bad_overrides(tmp_path: Path, overrides: Overrides, words: str) -> None:
    """A bad value on the command line is told by the name of its option."""
    with pytest.raises(UsageError) as caught:
        apply(load(written(tmp_path, GOOD)), overrides)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (Overrides(engine="builtin", model="no-such"), "--model no-such: "),
        (Overrides(model="no-such"), "--model no-such: "),
        (Overrides(engine="builtin", base_url="localhost:80"), "--base-url localhost:80: "),
    ],
)
def test_a_fault_of_the_command_line_is_not_blamed_on_the_file(
    tmp_path: Path, overrides: Overrides, words: str
) -> None:
    """What an option gave is told by the option, since the line of the file says something else."""
    path = written(tmp_path, "name: w\ntasks: tasks.jsonl\nconcurrency: [1]\narms: [{name: baseline, method: none}]\n")
    with pytest.raises(WorkloadError) as caught:
        experiment_of([path], overrides)
    assert str(caught.value).startswith(words)
    assert "w.yaml" not in str(caught.value)


def test_a_model_of_the_file_is_blamed_on_its_line(tmp_path: Path) -> None:
    """Without the option it is the file's own fault."""
    text = "name: w\ntasks: tasks.jsonl\nconcurrency: [1]\nengine: {model: no-such}\narms: [{name: baseline, method: none}]\n"
    with pytest.raises(WorkloadError, match=r"w\.yaml:4: "):
        experiment_of([written(tmp_path, text)], Overrides(engine="builtin"))
