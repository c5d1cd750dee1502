"""The DAG: Source → Records → Train → Report (→ Nightly), as Luigi tasks. They wire; ``pipeline`` does the work.

Importing this package loads the settings files, see config_files.py. The working directory and the project's folder
become places to import user code from, after all others, however Luigi was started.
"""

import contextlib
import os
import sys
import warnings

from tasks.cli import refuse_former_spelling

refuse_former_spelling(sys.orig_argv)

from tasks.process import interrupt

# The imports below take half a second, long enough for a Ctrl-C.
interrupt.leave_while_importing()

# For stages in this process, and before Keras is imported. If it is empty, Keras reads a file of its own.
os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "tensorflow"
# A stage in this process must not be cut short by them. The child process of a stage does not get them either.
for name in ("KERAS_MAX_EPOCHS", "KERAS_MAX_STEPS_PER_EPOCH"):
    os.environ.pop(name, None)
# Without it Luigi warns that an .ini file is not its default kind; it looks for one as soon as it is imported.
os.environ.setdefault("LUIGI_CONFIG_PARSER", "ini")
os.environ.setdefault("TENSORCRAFT_SCHEDULER_PORT", "8082")

from tasks import config_files

# Luigi's own RangeDaily and its settings for mail have parameters whose defaults are not of their type.
warnings.filterwarnings("ignore", message='Parameter ".+" with value "None" is not of type string')

with contextlib.suppress(FileNotFoundError):
    sys.path.append(os.getcwd())
sys.path.append(str(config_files.project_folder()))

config_files.take_experiment(sys.argv)
config_files.load()

from tasks.export import Export
from tasks.records import Records
from tasks.report import Report
from tasks.schedule.nightly import Nightly
from tasks.settings import Experiment, Force, Metrics, Notify, Storage
from tasks.source import Source
from tasks.train import Train
