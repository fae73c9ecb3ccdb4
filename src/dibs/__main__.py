"""The command ``dibs``, also as ``python -m dibs``."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("click", "rich")
USAGE = 2


def main() -> int:
    """Run the command line; without its extra, say how to get it."""
    if absent := [name for name in NEEDED if find_spec(name) is None]:
        sys.stderr.write(f"The command line needs {' and '.join(absent)}: pip install 'dibs[cli]'\n")
        return USAGE
    from dibs.cli.app import dibs

    return dibs.run()


if __name__ == "__main__":
    sys.exit(main())
