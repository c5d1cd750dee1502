"""``make verify``: every artefact under the storage root, read to the last byte."""

import argparse

from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.errors import DamagedArtefactError, SettingsError
from tasks.commands import command
from tasks.process import console
from tasks.report import Report
from tasks.stage import Stage
from tasks.storage import root_folder


def parser() -> argparse.ArgumentParser:
    """The command has no flags of its own."""
    return command.parser("verify", "Every file's sha256, every record's CRC, the label counts, of every artefact.")


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Verify every artefact, a line for each, and say how much was read; the exit code is that of damage if any is.

    Raises:
        SettingsError: there is nothing to verify: a mistaken root must not pass for a valid one.
    """
    with console.quiet_imports():
        from pipeline.verify import verify_artefact
    root = root_folder()
    folders = sorted(path.parent for path in root.rglob(f"[!.]*/{MANIFEST_NAME}"))
    if not folders:
        raise SettingsError(
            f"{root}: expected artefacts to verify, found none. Name the storage root with --Storage-root, or make "
            "some with: make pipeline"
        )
    read_bytes, damaged = 0, 0
    for folder in folders:
        try:
            # The report's folder may hold what is not ours.
            verify_artefact(folder, shared=folder == root / Report.kind)
            read_bytes += sum(entry["bytes"] for entry in read_manifest(folder)["files"])
            print(f"whole    {folder}")
        except DamagedArtefactError as error:
            damaged += 1
            print(f"damaged  {error}")
    whole = len(folders) - damaged
    print(f"{len(folders)} artefacts under {root}: {whole} whole, {read_bytes:,} bytes read; {damaged} damaged")
    return DamagedArtefactError.exit_code if damaged else 0


if __name__ == "__main__":
    command.run(main, parser())
