# SPDX-License-Identifier: Apache-2.0
"""Kernels that are wrong on purpose, each a few lines beside its right twin.

Each fault names its pitfall class and the checks that must catch it. A fault that no check catches,
or a named check that misses it, fails the suite.
"""
