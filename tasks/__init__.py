"""The DAG: Source → Records → Train → Report (→ Nightly), as Luigi tasks. They wire; ``pipeline`` does the work.

Importing this package loads ``config.ini`` from the project's folder, then ``central.ini`` where the environment says
``TENSORCRAFT_SCHEDULER=central`` (on port ``TENSORCRAFT_SCHEDULER_PORT``, or 8082), then the experiment's file where it
names one with ``TENSORCRAFT_EXPERIMENT``. A file named by ``LUIGI_CONFIG_PATH`` is read after them and wins.

The working directory and the project's folder become places to import from, after all others: a network or a recipe of
one's own may lie in either ([Train] model), however Luigi was started.
"""

import contextlib
import os
import sys
import warnings

from tasks.cli import refuse_former_spelling

refuse_former_spelling(sys.orig_argv)

from tasks.process import interrupt  # noqa: E402

# The imports below take half a second, long enough for a Ctrl-C.
interrupt.leave_while_importing()


# Must be set before Keras is imported, which the tasks do when they run. Empty, Keras would take that of its own file;
# another one is refused by Train.
os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "tensorflow"
# Without it Luigi warns that an .ini file is not its default kind; it looks for one as soon as it is imported.
os.environ.setdefault("LUIGI_CONFIG_PARSER", "ini")
os.environ.setdefault("TENSORCRAFT_SCHEDULER_PORT", "8082")

from tasks import config_files  # noqa: E402

# Luigi's own RangeDaily and its settings for mail have parameters whose defaults are not of their type.
warnings.filterwarnings("ignore", message='Parameter ".+" with value "None" is not of type string')

with contextlib.suppress(FileNotFoundError):
    sys.path.append(os.getcwd())
sys.path.append(str(config_files.PROJECT_FOLDER))

config_files.load()

from tasks.export import Export  # noqa: E402
from tasks.nightly import Nightly  # noqa: E402
from tasks.records import Records  # noqa: E402
from tasks.report import Report  # noqa: E402
from tasks.sections import Experiment, Force, Metrics, Notify  # noqa: E402
from tasks.source import Source  # noqa: E402
from tasks.storage import Storage  # noqa: E402
from tasks.train import Train  # noqa: E402

__all__ = [
    "Experiment",
    "Export",
    "Force",
    "Metrics",
    "Nightly",
    "Notify",
    "Records",
    "Report",
    "Source",
    "Storage",
    "Train",
]
