"""What a run with nothing to do costs, in counts, which hold on any machine."""

import json

from luigi_process import FAST

# Luigi builds one parser to run a task, and two for its exit codes. The fourth is ours, for the checks before the run.
PARSERS = 4

COUNTED = """
import collections, functools, json, sys
from luigi.cmdline_parser import CmdlineParser
import tasks
from tasks.__main__ import main

counts = collections.Counter()

def count(owner, name, key):
    original = getattr(owner, name)

    @functools.wraps(original)
    def counting(self, *args):
        counts[key(self)] += 1
        return original(self, *args)

    setattr(owner, name, counting)

count(CmdlineParser, "__init__", lambda self: "parsers")
count(tasks.stage.Stage, "identity", lambda self: self.task_family)
sys.argv = ["tasks", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps(counts))
"""


def test_a_run_with_nothing_to_do_parses_and_identifies_no_more_than_needed(first_run, tmp_path):
    done = first_run.copy(tmp_path).python("-c", COUNTED, "Report", *FAST)
    assert done.returncode == 0, done.stderr
    assert "Nothing to do" in done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["Source"] == 1
    assert counts["parsers"] == PARSERS
