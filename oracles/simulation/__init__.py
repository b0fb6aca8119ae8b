# SPDX-License-Identifier: Apache-2.0
"""Kernels simulated one rounding at a time, and a search for inputs that break their bounds."""
