# SPDX-License-Identifier: Apache-2.0
"""Test configuration of the repository itself; what users get is `assay.properties.plugin`."""

from __future__ import annotations

import os

from hypothesis import settings

from assay.kernels import device
from assay.properties import profiles

profiles.register()
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "assay-ci"))

# The choice of device comes before any kernel module is imported.
if os.environ.get("ASSAY_DEVICE", "auto") != "cuda" and device.select() == "interpreter":
    import torch

    # Tensors are small and xdist already uses the cores.
    torch.set_num_threads(1)
