# SPDX-License-Identifier: Apache-2.0
"""What is tested: Triton kernels with their claims, and kernels that are wrong on purpose."""
