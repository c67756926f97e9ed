"""What a manifest says of the versions that a run was measured with."""

from __future__ import annotations

from typing import Any

from harness import manifest


def test_a_run_continued_with_the_same_versions_is_left_as_it_is() -> None:
    """Nothing has changed, so nothing is noted."""
    run: dict[str, Any] = {"versions": manifest.versions(manifest.PACKAGES)}
    assert not manifest.note_continuation(run)
    assert "continued" not in run


def test_a_run_continued_with_another_version_says_so_once() -> None:
    """The versions that went on are noted; going on with them again adds nothing."""
    run: dict[str, Any] = {"versions": {"python": "2.7"}}
    assert manifest.note_continuation(run)
    assert not manifest.note_continuation(run)
    assert [again["versions"] for again in run["continued"]] == [manifest.versions(manifest.PACKAGES)]
