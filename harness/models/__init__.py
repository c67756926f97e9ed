"""Models by name or by path: those that come with the package, those of the catalogue, files and folders."""

from harness.models.cache import Progress, cache_folder, file_sha256
from harness.models.catalogue import CATALOGUE, CatalogueModel
from harness.models.pulling import pull
from harness.models.records import Listing, ModelFile, ModelFolder
from harness.models.resolving import installed, resolve, resolve_folder
from harness.models.shipped import TARGET, drafter_name, drafter_path, is_drafter

__all__ = [
    "CATALOGUE",
    "TARGET",
    "CatalogueModel",
    "Listing",
    "ModelFile",
    "ModelFolder",
    "Progress",
    "cache_folder",
    "drafter_name",
    "drafter_path",
    "file_sha256",
    "installed",
    "is_drafter",
    "pull",
    "resolve",
    "resolve_folder",
]
