"""`python -P -m tasks.shards.reading < the pickled parts`: a process that reads parts of a corpus ahead of `ingest`.

What it could not read `ingest` tries again, which then says why.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence

from tasks.shards.corpus import PartSpec
from tasks.stages.ingest import read_stages


def read_in_process(parts: Sequence[PartSpec]) -> None:
    """Read parts that were not read before in a process of their own, and wait for it."""
    command = [sys.executable, "-P", "-m", "tasks.shards.reading"]
    subprocess.run(command, input=pickle.dumps(list(parts)), stderr=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    parent = os.getppid()
    for part in pickle.load(sys.stdin.buffer):
        if os.getppid() != parent:
            break
        read_stages(part)
