"""What ``drafters adapt`` does where a site's file says nothing. Each follows a claim that was put to the test (``drafters claims``).

What stands in `drafters.training.site` follows some too: personal data is masked by surrogates, which cost nothing where labels do (claim
8), all weights are trained, which gains twice what LoRA does (4), and documents of all kinds go into one training (10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from drafters.training.site import Site

__all__ = ["METHOD", "MIX", "PASSES", "mix_of", "num_tokens", "told"]

METHOD: Final[Literal["mtp"]] = "mtp"
"""Of the trained methods that claims 3 and 13 timed, the one that takes least time at every load."""
NUM_TOKENS, PROSE_TOKENS = 3, 2
PROSE = "essay"
"""Free prose is harder to foresee than reports, mails and minutes: there shorter drafts take less time (claim 3)."""
PASSES = 4.0
"""Over what the target wrote: up to four are nearly as good as so much more text, eight no better than four (claim 6)."""
MIX = {"ko": 0.5, "en": 0.28, "code": 0.22}
"""As many tokens of Korean gain as much beside English and code as alone, and without these code is forgotten (claim 9)."""


def num_tokens(method: str, text_types: Iterable[str | None]) -> int | None:
    """Return the tokens of a draft; ``None``: the method's own default."""
    if method != METHOD:
        return None
    return PROSE_TOKENS if set(text_types) == {PROSE} else NUM_TOKENS


def mix_of(languages: Iterable[str | None]) -> dict[str, float]:
    """Return the shares of the language groups among some sources; none where one does not say what it holds, or all hold one group."""
    groups = {None if language is None else language.partition("+")[0] for language in languages}
    if None in groups or len(groups) < 2:
        return {}
    shares = {group: share for group, share in MIX.items() if group in groups}
    return {group: round(share / sum(shares.values()), 4) for group, share in shares.items()}


def told(site: Site) -> Iterator[str]:
    """Say what was decided where the file says nothing, and what it had better say."""
    if site.train.tokens is None and site.train.passes is None:
        yield f"train: neither tokens nor passes given; {PASSES:g} passes over what the target writes"
    if site.mix and not site.train.mix:
        shares = ", ".join(f"{group} {share:g}" for group, share in site.mix.items())
        yield f"train.mix: not given; {shares}, so that no language is forgotten for another"
    if not site.mix and site.drafter.method != "ngram" and site.drafter.start is not None:
        yield (
            "train.mix: none, as not all sources say their language, or all hold one: what the drafter knew of others is "
            "forgotten; add documents of English and code, each with its language"
        )
