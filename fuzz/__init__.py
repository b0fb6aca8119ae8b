# SPDX-License-Identifier: Apache-2.0
"""What runs long: audit, minimise, report, and the command line."""
