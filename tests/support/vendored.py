"""Files that others wrote and that this repository holds: where each comes from, under which licence, and its digest.

For another version, change its line here, fetch it (`npm pack NAME@VERSION`), and change the pages that name it.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    licence: str
    folder: str  # below which it lies, from the repository's root
    files: dict[str, str]  # path in the package -> SHA-256

    @property
    def own_folder(self) -> Path:
        return ROOT / self.folder / f"{self.name}-{self.version}"


PACKAGES = (
    Package(
        "htmx.org",
        "2.0.11",
        "0BSD",
        "viewer/static/vendor",
        {
            "dist/htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
            "LICENSE": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
        },
    ),
    Package(  # for tests alone
        "axe-core",
        "4.14.1",
        "MPL-2.0",
        "tests/viewer/vendor",
        {
            "axe.min.js": "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
            "LICENSE": "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
            "LICENSE-3RD-PARTY.txt": "4f8563870d0fca38bbc3e00b6f670cb7fa9f380ba9f26a7f7d1184a6b18b1653",
        },
    ),
)


def altered(package: Package) -> list[str]:
    """Return the files of a package that are missing or have another digest."""
    return [path for path, digest in package.files.items() if _digest(package.own_folder / Path(path).name) != digest]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
