# SPDX-License-Identifier: Apache-2.0
"""What is true: exact sums, certified enclosures, float formats, error bounds, data generators."""
