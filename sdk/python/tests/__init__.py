"""The tests of the package. Those that need a server run with the program that `STOCKADE_TEST_PROGRAM` names, in
the data directory `STOCKADE_DATA_DIR`."""

import os
import unittest

PROGRAM = os.environ.get("STOCKADE_TEST_PROGRAM")

needs_server = unittest.skipUnless(PROGRAM, "STOCKADE_TEST_PROGRAM names no program")
