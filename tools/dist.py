"""Builds the sdist and the wheel into dist/, looks into them, and tries the wheel where nothing else is installed.

The wheel has every file of src/dibs and nothing else. The sdist has the whole project with its tests, so that a
packager can run them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
EXTRAS = "binary,cli,embedded"  # what `dibs demo` needs
CORE = "import dibs, dibs.types, dibs.errors; dibs.App(); print(dibs.__name__, dibs.__version__)"


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command, in an environment in which no setting of ours leads to the source."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DIBS_", "PYTHONPATH"))}
    subprocess.run(list(map(str, command)), cwd=cwd, env=clean, check=True)


def sources() -> set[str]:
    """Every file of the package, as the wheel names it."""
    package = ROOT / "src" / "dibs"
    found = {str(file.relative_to(ROOT / "src")) for file in package.rglob("*") if file.is_file()}
    return {name for name in found if "__pycache__" not in name}


def wheel_differs(wheel: Path) -> list[str]:
    """Return the files that the wheel lacks or has too many of."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    missing = [f"the wheel lacks {name}" for name in sorted(sources() - packed)]
    return missing + [f"the wheel has {name}, which is no source" for name in sorted(packed - sources())]


def sdist_differs(sdist: Path) -> list[str]:
    """Return the files that the sdist lacks."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    tests = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("*.py")}
    wanted = {f"src/{name}" for name in sources()} | tests | {"LICENSE", "Makefile", "requirements-dev.lock"}
    return [f"the sdist lacks {name}" for name in sorted(wanted - packed)]


def try_out(wheel: Path) -> None:
    """Import the core with none of its extras, and watch the demo with those it needs."""
    with tempfile.TemporaryDirectory(prefix="dibs-dist-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Under root, the demo's PostgreSQL runs as another user.
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(*pip, wheel, cwd=folder)
        run(*pip, "psycopg-binary", cwd=folder)  # libpq, which the core leaves to the system
        run(python, "-c", CORE, cwd=folder)
        run(*pip, f"{wheel}[{EXTRAS}]", cwd=folder)
        run(folder / "venv" / "bin" / "dibs", "demo", "--jobs", "50", cwd=folder)


def main() -> int:
    """Build, look and try."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    if found := wheel_differs(wheel) + sdist_differs(sdist):
        print(*found, sep="\n")
        return 1
    try_out(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
