"""All tests of this folder share one Spark session. Commands that are called in them use it, too."""

import pytest

from mpijoin.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark():
    with spark_session("tests", "local[2]") as session:
        yield session
