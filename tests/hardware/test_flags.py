"""Environment variables of computation, which are part of a run's record."""

from pipeline.hardware.backend import computation_flags, flags


def test_variables_that_change_what_is_computed_are_told_from_others():
    computing = {"OMP_NUM_THREADS": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "XLA_FLAGS": "--x", "JAX_ENABLE_X64": "1"}
    computing |= {"TF_NUM_INTRAOP_THREADS": "1", "NVIDIA_TF32_OVERRIDE": "1", "TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}
    placing = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "0", "TPU_NAME": "t"}
    others = {"HOME": "/root", "JAX_COORDINATOR_ADDRESS": "h:1", "JAX_COMPILATION_CACHE_DIR": "/c", "OMPI_RANK": "0"}
    assert computation_flags(computing | placing | others) == computing
    assert flags(computing | placing | others) == computing | placing
