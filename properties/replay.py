# SPDX-License-Identifier: Apache-2.0
"""Replaying a witness: rebuild the input bit for bit, run, compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay.kernels.record import Kernel
from assay.kernels.target import resolve
from assay.properties.case import build
from assay.properties.checks import run_check
from assay.properties.judge import Verdict
from assay.properties.values import CaseError
from assay.properties.witness import Witness, WitnessError, output_bits, versions


@dataclass(frozen=True)
class Replay:
    """What replaying a witness showed.

    verdict: of the same check on the same input, now.
    output: the result's bits now.
    same_bits: the output is the recorded one to the last bit.
    changes: what differs from the recording: kernel source, versions, device.
    """

    witness: Witness
    verdict: Verdict
    output: tuple[tuple[str, ...], ...]
    same_bits: bool
    changes: tuple[str, ...]

    @property
    def persists(self) -> bool:
        return self.verdict.failed

    def describe(self) -> str:
        """A few lines for a person."""
        w, v = self.witness, self.verdict
        lines = [f"{w.kernel}: {w.check} on {w.case}"]
        outcome = "still fails" if v.failed else "no longer fails"
        bits = "same output bits" if self.same_bits else "other output bits"
        lines.append(
            f"  {outcome}, {bits} as recorded" if self.same_bits else f"  {outcome}, {bits}"
        )
        if v.message:
            lines.append(f"  {v.message}")
        if v.status == "skip":
            lines.append("  the check no longer speaks about this case")
        lines.extend(f"  changed since: {change}" for change in self.changes)
        if not self.same_bits and not self.changes:
            lines.append(f"  {_unexplained(w, self.output)}")
        return "\n".join(lines)


def _unexplained(witness: Witness, output: tuple[tuple[str, ...], ...]) -> str:
    before = sum(len(r) for r in witness.output)
    differ = sum(
        a != b
        for old, new in zip(witness.output, output, strict=False)
        for a, b in zip(old, new, strict=False)
    )
    return f"{differ} of {before} output elements differ though nothing is known to have changed"


def _located(target: str, base: Path) -> str:
    """A file target seen from here, else from the witness's folder or one above it."""
    file, _, attribute = target.rpartition(":")
    if not file.endswith(".py") or Path(file).is_file():
        return target
    for folder in (base.resolve(), *base.resolve().parents):
        if (folder / file).is_file():
            return f"{folder / file}:{attribute}"
    return target


def kernel_of(witness: Witness, base: Path = Path()) -> Kernel:
    """The kernel that a witness names, with the claims it was recorded with."""
    if ":" not in witness.kernel:
        return resolve(witness.kernel, operation=witness.operation)
    return resolve(
        _located(witness.kernel, base),
        operation=witness.operation,
        dtypes=witness.dtypes,
        accumulator=witness.accumulator,
        policies=witness.policies,
    )


def replay(witness: Witness, base: Path) -> Replay:
    """Run a witness again. `base`: the folder that it lies in.

    Raises WitnessError if the input cannot be rebuilt bit for bit.
    """
    if witness.case.operation != witness.operation:
        raise WitnessError(
            f"the input cannot be rebuilt: the witness is of {witness.operation}, its case of "
            f"{witness.case.operation}"
        )
    try:
        problem = build(witness.case, base)
    except CaseError as error:
        raise WitnessError(f"the input cannot be rebuilt: {error}") from None
    digests = {k: t.digest for k, t in problem.tensors.items()}
    if digests != witness.inputs:
        odd = sorted(
            k
            for k in digests.keys() | witness.inputs.keys()
            if digests.get(k) != witness.inputs.get(k)
        )
        raise WitnessError(
            f"the input cannot be rebuilt: {', '.join(odd)} does not have the recorded checksum"
        )
    kernel = kernel_of(witness, base)
    problem = problem.with_launch(witness.launch)
    # The plain output first: the check may leave state behind, as some faults do.
    output = output_bits(kernel, problem)
    (verdict,) = run_check(witness.check, kernel, [problem])
    return Replay(witness, verdict, output, output == witness.output, _changes(witness, kernel))


def _changes(witness: Witness, kernel: Kernel) -> tuple[str, ...]:
    changes = []
    if kernel.source_hash != witness.source_sha256:
        changes.append("the kernel's source file")
    now = versions()
    for field in ("device", "name", "arch", "triton", "torch", "python", "assay"):
        old, new = getattr(witness.versions, field), getattr(now, field)
        if old != new:
            changes.append(f"{field} {old or '(none)'} -> {new or '(none)'}")
    if dict(kernel.policies) != witness.policies:
        changes.append(f"policies {witness.policies} -> {dict(kernel.policies)}")
    return tuple(changes)
