"""All tests of this folder share one Spark session. Commands that are called in them use it, too."""

import pytest

from mpijoin.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark():
    # What Spark cannot compile fails here. Elsewhere it would say so at length, and go on many times as slowly.
    with spark_session("tests", "local[2]", {"spark.sql.codegen.fallback": "false"}) as session:
        yield session
