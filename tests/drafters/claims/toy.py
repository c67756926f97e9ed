"""A stage that can be stopped: counts up in its folder, a line a step, and goes on where it was."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from drafters.training.stage import begin, finish, write_whole


def main(out: Path, steps: int) -> int:
    """Take so many steps, the first of them slow enough to be interrupted."""
    if begin(out, "toy", {}, {"steps": steps}) is not None:
        return 0
    path = out / "done"
    done = len(path.read_text("utf-8").splitlines()) if path.exists() else 0
    starts = out / "starts"
    starts.write_text((starts.read_text("utf-8") if starts.exists() else "") + "x\n", "utf-8")
    for step in range(done, steps):
        write_whole(path, "".join(f"{number}\n" for number in range(step + 1)))
        time.sleep(60 if step == 0 and not done and steps > 1 else 0)
    finish(out, ["done"], {"steps": steps})
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[sys.argv.index("--out") + 1]), int(sys.argv[sys.argv.index("--steps") + 1])))
