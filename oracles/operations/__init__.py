# SPDX-License-Identifier: Apache-2.0
"""One module an operation, each with an `OPERATION`."""
