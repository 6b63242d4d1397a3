"""Runs under torchrun: `anydepth ...`, where the process of one rank is killed after step 15, the first time only.

killed_worker.py RANK MARK ...     MARK is a file that says that it has happened
"""

import os
import signal
import sys
from pathlib import Path

from anydepth.cli import main
from anydepth.training.trainer import Trainer

rank, mark = sys.argv[1], Path(sys.argv[2])
update = Trainer._update


def update_or_die(self: Trainer) -> None:
    if self.state.step == 15 and os.environ["RANK"] == rank and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    update(self)


Trainer._update = update_or_die  # type: ignore[method-assign]
sys.argv = ["anydepth", *sys.argv[3:]]
main()
