"""The DAG of Luigi tasks, Source → Records → Train → Report (→ Nightly). The package ``pipeline`` does the work.

Importing this package loads the settings files (config_files.py). It appends the working directory and the project's
folder to ``sys.path``, so that user code can be imported.
"""

import os
import sys
import warnings

# A former command, such as python -m tasks.commands.status. Delete this after one release.
if "-m" in (words := sys.orig_argv[:-1]) and sys.orig_argv[words.index("-m") + 1].startswith("tasks."):
    print("ERROR SettingsError: expected python -m tasks <command>. Run python -m tasks --help.", file=sys.stderr)
    raise SystemExit(2)

try:
    os.getcwd()
except FileNotFoundError:
    print("ERROR SettingsError: the working directory was removed. Change to one that exists.", file=sys.stderr)
    raise SystemExit(2) from None

from tasks.process import interrupt

# The following imports take half a second, long enough for a Ctrl-C.
interrupt.leave_while_importing()

# For stages in this process, before Keras is imported. Without it, Keras would read keras.json.
os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "tensorflow"
# Without it, Luigi warns about .ini files while it is imported.
os.environ.setdefault("LUIGI_CONFIG_PARSER", "ini")
os.environ.setdefault("TENSORCRAFT_SCHEDULER_PORT", "8082")

from tasks import config_files

# The defaults of some of Luigi's own parameters have another type.
warnings.filterwarnings("ignore", message='Parameter ".+" with value "None" is not of type string')

sys.path += [os.getcwd(), str(config_files.project_folder())]

config_files.take_experiment(sys.argv)
config_files.load()

from tasks import lineage
from tasks.data import Records, Source
from tasks.export import Export
from tasks.nightly import Nightly
from tasks.report import Report
from tasks.settings import Experiment, Force, Metrics, Notify, Storage
from tasks.train import Train
