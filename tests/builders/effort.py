"""How much a run of the tests takes on."""

from __future__ import annotations

import os

IS_THOROUGH = bool(os.environ.get("TAMIS_THOROUGH"))
"""Whether all cases of long sweeps run, and properties with more examples: `make test-thorough`."""
