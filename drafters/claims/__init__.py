"""Fifteen claims about drafters, each tested by one command on held-out tasks: what holds, what does not, and what to do.

`scale` says how much is done, `recipes` which stages, `store` runs them once and shares them, `counts` and `bootstrap`
read what was measured, `verdicts` judge it; the claims themselves are a few lines each in ``claim_*.py``.
"""
