"""All claims by number."""

from __future__ import annotations

from collections.abc import Mapping

from drafters.claims import claim_data, claim_models, claim_precision, claim_selector, claim_shipped
from drafters.claims.claim import Claim

__all__ = ["CLAIMS"]

_MODULES = (claim_shipped, claim_data, claim_selector, claim_precision, claim_models)
CLAIMS: Mapping[int, Claim] = {
    claim.number: claim for claim in sorted((c for m in _MODULES for c in m.CLAIMS), key=lambda c: c.number)
}
"""In the order of their numbers."""
