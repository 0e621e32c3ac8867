"""What a run was trained on and with: hardware and package versions. Read for the record, never used to decide."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from marin_scaling.run.run_record import Hardware

_PACKAGES = ("marin-scaling", "marin-levanter", "marin-haliax", "jax", "jaxlib", "optax", "numpy")


def hardware() -> Hardware:
    """The devices that JAX sees, and the cores that this process may use."""
    import jax  # the launcher asks for the commit only

    device = jax.devices()[0]
    return Hardware(
        platform=f"{platform.system()} {platform.machine()}, {device.platform}",
        device_kind=device.device_kind,
        device_count=jax.device_count(),
        cpu_count=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a loss; those not installed are absent."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
