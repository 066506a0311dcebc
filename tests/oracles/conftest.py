"""Count every scan of an oracle with every interface: `to_arrow()`, `to_batches()`, `count()` and `SELECT count(*)`."""

from __future__ import annotations

import pytest

from builders.answers.count_every_way import check_counts
from tamis.scan.scan import Scan


@pytest.fixture(autouse=True, scope="module")  # only in this folder: other tests count requests
def _count_every_way() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scan, "to_arrow", check_counts)
        yield
