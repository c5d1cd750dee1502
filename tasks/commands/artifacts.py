"""The commands ``status``, ``verify``, ``clean-stale``, ``push`` and ``pull`` for artifacts here and on the remote."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.artifacts.publish import discard, used_bytes
from pipeline.errors import DamagedArtifactError, RemoteError, SettingsError, UnreadableArtifactError, plural
from pipeline.optional_packages import install_command
from pipeline.stage_process import in_child
from tasks import remote_cache
from tasks.commands import argument, command
from tasks.data import Source
from tasks.process import lock
from tasks.report import Report, histories
from tasks.settings import Storage, root_folder
from tasks.stage import Stage, differing
from tasks.train import Train

# Names of artifacts, checkpoints and dated reports. A folder of such a name without a manifest is damaged.
_OURS = re.compile(r".+-[0-9a-f]{12}|epoch-\d+|\d{4}-\d\d-\d\d")
_NOT_REMOVED = "none removed. To remove them, repeat the command with --yes."


@command(argument("--json", action="store_true", help="print a JSON object"))
def status(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Show the state of each stage and the reasons for it."""
    states, listed, named = {}, set(), by_name(stages)
    features = {name: one for name, stage in named.items() if isinstance(stage, Train) and (one := stage.features())}
    is_shared = len({one.folder for one in features.values()}) == 1
    for name, stage in named.items():
        one, state = features.get(name), stage.status()
        # A finished run needs none, and several runs of a sweep may share them.
        if one and one.folder not in listed and (one.folder.is_dir() or not state.is_fresh):
            states["Features" if is_shared else name.replace(stage.task_family, "Features", 1)] = one.status()
            listed.add(one.folder)
        states[name] = state
    if not states["Source"].is_available:
        Source().check_files()
    if arguments.json:
        print(json.dumps({name: dataclasses.asdict(one) for name, one in states.items()}, indent=1))
        return 0
    width = max(map(len, states)) + 1
    for name, one in states.items():
        first, *others = [*([f"on the remote, {one.remote}"] if one.remote else []), *one.reasons] or [""]
        print(f"{name:{width}} {one.state:10} {first}".rstrip())
        print("".join(f"{'':{width + 12}}{reason}\n" for reason in others), end="")
    return 0


@command()
def verify(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Read every artifact under the storage root, and compare it with its checksums."""
    root = root_folder()
    folders = dict.fromkeys(_artifacts(root))
    if not folders:
        # A wrong root must not count as valid.
        raise SettingsError(f"{root}: expected artifacts, found none. Pass the storage root with --Storage-root.")
    states, read_bytes = [], 0
    for folder in folders:
        state, details = "valid", folder
        try:
            # People may keep files of their own in the report's folder.
            in_child("pipeline.runs.verify:verify_artifact", {"folder": folder})
            read_bytes += sum(entry["bytes"] for entry in read_manifest(folder)["files"])
        except DamagedArtifactError as error:
            state, details = "unreadable" if isinstance(error, UnreadableArtifactError) else "damaged", error
        states.append(state)
        print(f"{state:8} {details}")
    valid, damaged, closed = map(states.count, ("valid", "damaged", "unreadable"))
    counts = f"{valid} valid, {damaged} damaged, {closed} unreadable, {read_bytes:,} bytes read"
    print(f"{len(states)} artifacts in {root}, {counts}")
    return DamagedArtifactError.exit_code if damaged else UnreadableArtifactError.exit_code if closed else 0


def _artifacts(root: Path) -> Iterator[Path]:
    """All folders that are or should be artifacts, including unreadable ones. A folder may occur twice."""
    for kind in (*layout.KINDS, *layout.PAST_KINDS):
        yield from _named(root / kind)
    for folder in _named(root / layout.CHECKPOINTS):
        yield from _named(folder)
    report = root / Report.kind
    if report.exists():
        yield report
        with contextlib.suppress(DamagedArtifactError):
            shown = read_manifest(report)["identity"].get("upstream", {}).get("runs", {})
            yield from (root / Train.kind / name for name in sorted(shown))
    for history in histories(root / layout.DATED_REPORTS):
        yield from _named(history)


def _named(folder: Path) -> list[Path]:
    """Subfolders with the name of an artifact or a manifest. The folder itself if it is unreadable."""
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
        return [folder]
    folders = (path for path in layout.artifact_folders(folder) if path.is_dir())
    return [path for path in folders if _OURS.fullmatch(path.name) or os.path.lexists(path / MANIFEST_NAME)]


@command(
    argument("--yes", action="store_true", help="remove the listed artifacts"),
    argument("--remote", action="store_true", help="list unreferenced objects of the remote that are a day old"),
)
def clean_stale(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """List or remove the artifacts that are no longer needed."""
    if arguments.remote:
        return _clean_remote(is_removing=arguments.yes)
    if not all(stage.is_resolved() for stage in stages):
        raise SettingsError("clean-stale: the source is not built yet. Run the pipeline with these settings first.")
    # It imports the schema of a run, which takes longer than the status.
    from tasks.retention import find_stale, remove

    root = root_folder()
    lock.hold(root, on_busy=Storage().on_busy)
    sizes = {folder: used_bytes(folder) for folder in find_stale(stages)}
    for folder, size in sizes.items():
        print(f"{size / 1e6:10.1f} MB  {folder}")
    removed = [folder for folder in sizes if arguments.yes and remove(folder)]
    outcome = f"{len(removed)} removed" if arguments.yes else _NOT_REMOVED
    print(f"{sum(sizes.values()) / 1e6:10.1f} MB in {plural(len(sizes), 'artifact')}, {outcome}")
    for folder in sorted(root.glob(f"*/[!.]*{layout.KEPT}*")):
        print(f"Kept {folder}, because it contains your files. Move them elsewhere and remove the folder.")
    if arguments.yes:
        # This process has the lock, so no download is running.
        discard(root / layout.FETCHING)
    return 0


@command()
def push(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Upload the artifacts of the current settings to [Storage] remote."""
    cache = remote_cache.required()
    for name, stage in by_name([stage for stage in stages if stage.is_shared]).items():
        state = stage.status()
        if state.is_fresh and stage.is_final():
            outcome = cache.put(stage.kind, stage.output().folder, replace=stage.is_renewed, keep=True)
        else:
            outcome = f"not pushed ({'not final, or built elsewhere' if state.is_fresh else state})"
        print(f"{name}: {outcome}", flush=True)
    return 0


@command()
def pull(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Download the artifacts of the current settings from [Storage] remote."""
    cache, is_missing = remote_cache.required(), False
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    for name, stage in by_name([stage for stage in stages if stage.is_shared]).items():
        state = stage.status(cache)
        if state.remote:
            artifact = stage.output()
            cache.get(stage.kind, artifact.expected, artifact.folder)
            print(f"{name}: downloaded {artifact}", flush=True)
        elif state.is_fresh:
            print(f"{name}: already on this machine, {stage.output()}", flush=True)
        else:
            print(f"{name}: not on the remote ({state})", flush=True)
            is_missing = True
    return RemoteError.exit_code if is_missing else 0


def by_name(stages: Sequence[Stage]) -> dict[str, Stage]:
    """Task name → stage. Stages of the same task get the settings that differ appended to the name."""
    named = {}
    for _, group in itertools.groupby(stages, key=lambda stage: stage.task_family):
        alike = list(group)
        for stage, settings in zip(alike, differing([one.param_kwargs for one in alike]), strict=True):
            words = ", ".join(f"{name} {value}" for name, value in settings.items())
            named[f"{stage.task_family} {words}".strip()] = stage
    return named


def _clean_remote(*, is_removing: bool) -> int:
    remote = remote_cache.required().remote
    from pipeline.remote.artifacts import interrupted_uploads, unreferenced_objects

    sizes, count, outcome = [], 0, "removed" if is_removing else _NOT_REMOVED
    for one in unreferenced_objects(remote, is_removing=is_removing):
        print(f"{one.num_bytes / 1e6:10.1f} MB  {remote.url}/{one.key}", flush=True)
        sizes.append(one.num_bytes)
    print(f"{sum(sizes) / 1e6:10.1f} MB in {plural(len(sizes), 'unreferenced object')}, {outcome}")
    if not Storage().remote.startswith("s3://"):
        return 0
    where = {"endpoint": Storage().remote_endpoint, "is_removing": is_removing}
    try:
        for key, begun_at in interrupted_uploads(remote.url, **where):
            print(f"{'upload':>13}  {key}, started {begun_at:%Y-%m-%d %H:%M} UTC", flush=True)
            count += 1
        print(f"{'':13}  {plural(count, 'interrupted upload')}, {outcome}")
    except ModuleNotFoundError as error:
        remedy = f"Install it with: {install_command('s3')}"
        print(f"Interrupted uploads not checked, because {error.name} is not installed. {remedy}")
    return 0
