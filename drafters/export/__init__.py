"""Models and drafters as GGUF, the file format of llama.cpp: `model_file`, `drafter_file`, and how they are written."""

from drafters.export.drafter import drafter_file
from drafters.export.gguf_file import DTYPES, GgufFile
from drafters.export.target import About, model_file

__all__ = ["DTYPES", "About", "GgufFile", "drafter_file", "model_file"]
