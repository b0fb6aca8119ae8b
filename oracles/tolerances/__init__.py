# SPDX-License-Identifier: Apache-2.0
"""Tolerances for a test: from measured curves or from the bound, and what they cannot see."""
