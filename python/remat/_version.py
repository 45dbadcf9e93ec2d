# SPDX-License-Identifier: Apache-2.0
"""The one version of torch that the compiled part works with: LibTorch's C++ interface has no promises
between releases, and a wrong version would crash instead of saying so."""

TORCH_VERSION = "2.13.0"


def check_torch():
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"remat needs torch {TORCH_VERSION}, which is not installed: pip install torch=={TORCH_VERSION}"
        ) from error
    found = torch.__version__.split("+")[0]
    if found != TORCH_VERSION:
        raise ImportError(
            f"remat was compiled for torch {TORCH_VERSION}, and torch {torch.__version__} is installed: "
            f"pip install torch=={TORCH_VERSION}, or build remat for the other one"
        )
