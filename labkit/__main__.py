import sys

from labkit import cli

sys.exit(cli.main())
