import pytest
from training_runs import run


@pytest.fixture(scope="session")
def trained(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    return folder, run(small_records, folder)
