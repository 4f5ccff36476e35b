"""One Spark session for all tests of this folder; commands called in them use it too."""

import pytest

from mpijoin.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark():
    with spark_session("tests", "local[2]") as session:
        yield session
