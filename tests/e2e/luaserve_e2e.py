"""The harness under the name by which the tests of the documentation import it."""
from harness import *  # noqa: F403
