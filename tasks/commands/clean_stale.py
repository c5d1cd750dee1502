"""``make clean-stale``: removes the artefacts that the present settings do not reach (see operations/unreached.py).

What belongs to other experiments under the root stays (see operations/other_experiments.py), and is said to.
"""

import argparse

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import discard, remove_artefact
from pipeline.errors import SettingsError
from tasks import sharing
from tasks.commands import command
from tasks.operations.other_experiments import of_other_experiments
from tasks.operations.unreached import unreached
from tasks.process import lock
from tasks.stage import Stage
from tasks.storage import Storage, root_folder


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    own = command.parser("clean-stale", "Remove artefacts that the present settings do not reach.")
    own.add_argument("--dry-run", action="store_true", help="only list them (make clean-stale DRY=1)")
    own.add_argument(
        "--remote",
        action="store_true",
        help="instead, objects of [Storage] remote that no manifest names and that are a day old (REMOTE=1)",
    )
    return own


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """List what is not reached, with sizes, and remove it unless ``--dry-run``."""
    if arguments.remote:
        return _of_the_remote(dry_run=arguments.dry_run)
    if not all(stage.is_known() for stage in stages):
        raise SettingsError("what the present settings reach is not known before the source is: run make pipeline")
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    others, experiments = of_other_experiments(stages)
    stale = unreached(stages, others)
    for folder, size in stale.items():
        print(f"{size / 1e6:10.1f} MB  {folder}")
    print(f"{sum(stale.values()) / 1e6:10.1f} MB in {len(stale)} artefacts{' (not removed)' * arguments.dry_run}")
    if experiments:
        print(
            f"What belongs to other experiments stays: {', '.join(experiments)}. What is stale of one goes with: "
            "make clean-stale EXPERIMENT=..."
        )
    if not arguments.dry_run:
        for folder in stale:
            remove_artefact(folder)
        # Nobody is fetching: the root is ours.
        discard(root_folder() / layout.FETCHING)
    return 0


def _of_the_remote(*, dry_run: bool) -> int:
    remote = sharing.required()
    from pipeline.remote.garbage import find_garbage, remove_garbage

    count = total = 0
    for one in find_garbage(remote) if dry_run else remove_garbage(remote):
        print(f"{one.num_bytes / 1e6:10.1f} MB  {remote.url}/{one.key}", flush=True)
        count, total = count + 1, total + one.num_bytes
    print(f"{total / 1e6:10.1f} MB in {count:,} objects that no manifest names{' (not removed)' * dry_run}")
    return 0


if __name__ == "__main__":
    command.run(main, parser())
