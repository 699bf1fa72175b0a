"""``python -m graphguard``: the command line where its script is not on the path."""

import sys

from graphguard.cli import main

sys.exit(main())
