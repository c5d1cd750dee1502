"""``make verify``: every artefact under the storage root, read to the last byte."""

from pipeline.artefacts.manifest import MANIFEST_NAME
from pipeline.errors import DamagedArtefactError
from tasks.commands import command
from tasks.process import console
from tasks.report import Report
from tasks.storage import root_folder


def main(argv: list[str]) -> int:
    """Verify every artefact and print a line for each; the exit code is that of damage if any is damaged."""
    _, overrides = command.parser(
        "verify", "Every file's sha256, every record's CRC, the label counts, of every artefact."
    ).parse_known_args(argv)
    with command.stages_of(overrides), console.quiet_imports():
        from pipeline.verify import verify_artefact
    damaged = 0
    for folder in sorted(path.parent for path in root_folder().rglob(f"[!.]*/{MANIFEST_NAME}")):
        try:
            # The report's folder may hold what is not ours.
            verify_artefact(folder, shared=folder == root_folder() / Report.kind)
            print(f"whole    {folder}")
        except DamagedArtefactError as error:
            damaged += 1
            print(f"damaged  {error}")
    return DamagedArtefactError.exit_code if damaged else 0


if __name__ == "__main__":
    command.run(main)
